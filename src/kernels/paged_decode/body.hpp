// Decode: one query token, the heads of some KV heads, a range of keys read in place (layer
// kernels).
//
// Nothing is packed or gathered: each key is loaded as it lies in its page and meets all heads of
// its group in registers; each value likewise. An item takes several KV heads, so that a tile of
// keys is one run of memory, or a few, in either layout: while the heads pass over it from the
// second-level cache, the next tile is fetched there in the order of its addresses, which is what
// DRAM likes.
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/paged_decode/policy.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/softmax/online_softmax.hpp"

namespace attune::kernels::paged_decode {

template <class Unit, DType T>
struct Body {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  using Operand = typename Unit::Operand;
  using Io = dense::RowIo<Unit, T>;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static constexpr int kGroups = V::kNumColumns / Unit::kPair;  ///< operands a value tile is wide

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    char* const base = static_cast<char*>(scratch);
    auto* const q = reinterpret_cast<Number*>(base + p.scratch.q);
    auto* const o = reinterpret_cast<float*>(base + p.scratch.o);
    auto* const maximum = reinterpret_cast<float*>(base + p.scratch.maximum);
    auto* const sum = reinterpret_cast<float*>(base + p.scratch.sum);
    const int rows = item.num_heads;
    const int group = p.gqa_group_size;
    const std::int64_t o_stride = p.scratch.o_stride;

    Io::load_queries(p, item, q);
    for (int r = 0; r < rows; ++r) maximum[r] = softmax::kNone;
    for (std::int64_t i = 0; i < rows * kLanes; i += kLanes) V::store(sum + i, V::zero());
    for (std::int64_t i = 0; i < rows * o_stride; i += kLanes) V::store(o + i, V::zero());

    alignas(64) float scores[kMaxGroup * kTile];
    alignas(64) Number weights[kMaxGroup * kTile];
    dense::TileRows tiles[2];
    std::int64_t tile = item.kv_begin / kTile * kTile;
    if (tile < item.kv_end) Io::template locate<kTile>(p, item, tile, tiles[0]);
    for (int now = 0; tile < item.kv_end; tile += kTile, now ^= 1) {
      dense::TileRows& next = tiles[now ^ 1];
      if (tile + kTile < item.kv_end)
        Io::template locate<kTile>(p, item, tile + kTile, next);
      else
        next.from = next.to = 0;
      Fetch fetch_k(next, next.k, item.num_kv_heads, p.kv.k_head_stride, p.head_dim_qk);
      Fetch fetch_v(next, next.v, item.num_kv_heads, p.kv.v_head_stride, p.head_dim_vo);
      for (int n = 0; n < item.num_kv_heads; ++n) {
        const Keys keys{.rows = tiles[now],
                        .k_offset = n * p.kv.k_head_stride * kBytes,
                        .v_offset = n * p.kv.v_head_stride * kBytes};
        score_rows(p, keys, fetch_k, q + n * group * p.scratch.q_stride, scores);
        softmax::RowRule rule = Io::common_rule(p, item, item.kv_head + n);
        for (int r = 0; r < group; ++r) {
          const int row = n * group + r;
          Io::set_rule(p, item, 0, row, tile, keys.rows.from, keys.rows.to, rule);
          softmax::OnlineSoftmax<Unit>::update(scores + r * kTile, keys.rows.to, rule, maximum[row],
                                               sum + row * kLanes, o + row * o_stride, o_stride,
                                               weights + r * kTile);
        }
        add_values(p, keys, fetch_v, weights, o + n * group * o_stride);
      }
    }
    for (int r = 0; r < rows; ++r)
      Io::finish(p, item, r, o + r * o_stride, maximum[r], sum + r * kLanes);
  }

 private:
  /// One tile as one KV head sees it.
  struct Keys {
    const dense::TileRows& rows;
    std::int64_t k_offset;  ///< bytes from the item's first KV head
    std::int64_t v_offset;

    [[nodiscard]] int clamp(int i) const {
      return i < rows.from ? rows.from : i < rows.to ? i : rows.to - 1;
    }
    [[nodiscard]] const char* k(int i) const { return rows.k[clamp(i)] + k_offset; }
    [[nodiscard]] const char* v(int i) const { return rows.v[clamp(i)] + v_offset; }
  };

  /// Walks over the lines of the next tile, in the order of their addresses, a few a step. Into the
  /// first-level cache: on Zen 5 the second-level hint brings a third less.
  class Fetch {
   public:
    Fetch(const dense::TileRows& next, const char* const* rows, int num_heads,
          std::int64_t head_stride, std::int64_t head_dim)
        : rows_(rows), from_(next.from), to_(next.to), row_(next.from) {
      const std::int64_t dim_bytes = head_dim * kBytes;
      const bool runs_on = head_stride == head_dim;  // NHD: a token's heads are one piece
      head_bytes_ = head_stride * kBytes;
      num_heads_ = next.from == next.to ? 0 : runs_on ? 1 : num_heads;
      row_bytes_ = runs_on ? num_heads * dim_bytes : dim_bytes;
      const std::int64_t lines = (to_ - from_) * num_heads_ * ((row_bytes_ + 63) / 64);
      const std::int64_t steps = std::int64_t{num_heads} * kSteps;
      lines_a_step_ = static_cast<int>((lines + steps - 1) / steps);
    }

    /// Called kSteps times for each KV head.
    void step() {
      for (int n = 0; n < lines_a_step_ && head_ < num_heads_; ++n) {
        V::prefetch(rows_[row_] + head_ * head_bytes_ + at_);
        at_ += 64;
        if (at_ < row_bytes_) continue;
        at_ = 0;
        if (++row_ < to_) continue;
        row_ = from_;
        ++head_;
      }
    }

    static constexpr int kSteps = 16;

   private:
    const char* const* rows_;
    int from_;
    int to_;
    int row_;
    int head_ = 0;
    int num_heads_ = 0;
    int lines_a_step_ = 0;
    std::int64_t at_ = 0;
    std::int64_t head_bytes_ = 0;
    std::int64_t row_bytes_ = 0;
  };
  static constexpr int kKeysAStep = kTile / Fetch::kSteps;

  static void score_rows(const dense::Params& p, const Keys& keys, Fetch& fetch, const Number* q,
                         float* scores) {
    const int rows = p.gqa_group_size;
    for (int r = 0; r < rows;) {
      const Number* const qr = q + r * p.scratch.q_stride;
      float* const out = scores + r * kTile;
      Fetch* const first = r == 0 ? &fetch : nullptr;
      if (kLanes >= 4 && rows - r >= 4) {
        score_block<4>(p, keys, first, qr, out);
        r += 4;
      } else if (kLanes >= 2 && rows - r >= 2) {
        score_block<2>(p, keys, first, qr, out);
        r += 2;
      } else {
        score_block<1>(p, keys, first, qr, out);
        r += 1;
      }
    }
  }

  /// R rows against the whole tile; kLanes sums at a time, so that they are reduced together.
  template <int R>
  static void score_block(const dense::Params& p, const Keys& keys, Fetch* fetch, const Number* q,
                          float* scores) {
    if constexpr (R <= kLanes) {
      constexpr int kKeys = kLanes / R;
      const std::int64_t q_stride = p.scratch.q_stride;
      const std::int64_t whole = p.head_dim_qk / Unit::kNumbers * Unit::kNumbers;
      const int rest = static_cast<int>(p.head_dim_qk - whole);
      for (int key = keys.rows.from / kKeys * kKeys; key < keys.rows.to; key += kKeys) {
        // Beyond the tile's ends a real key stands in; its sums are hidden.
        const char* k[kKeys];
        simd::unroll<kKeys>([&](auto i) { k[i] = keys.k(key + i); });
        if (fetch != nullptr)
          for (int i = 0; i < kKeys; i += kKeysAStep)
            if (kKeys >= kKeysAStep || key % kKeysAStep == 0) fetch->step();

        F sums[kLanes];
        simd::unroll<kLanes>([&](auto i) { sums[i] = V::zero(); });
        const auto step = [&](std::int64_t d, const Operand(&x)[kKeys]) {
          simd::unroll<R>([&](auto r) {
            const Operand query = Unit::load(q + r * q_stride + d);
            simd::unroll<kKeys>([&](auto i) {
              sums[r * kKeys + i] = Unit::multiply_add(query, x[i], sums[r * kKeys + i]);
            });
          });
        };
        for (std::int64_t d = 0; d < whole; d += Unit::kNumbers) {
          Operand x[kKeys];
          simd::unroll<kKeys>([&](auto i) { x[i] = Unit::template load_as<T>(k[i] + d * kBytes); });
          step(d, x);
        }
        if (rest > 0) {
          Operand x[kKeys];
          simd::unroll<kKeys>(
              [&](auto i) { x[i] = Unit::template load_as_n<T>(k[i] + whole * kBytes, rest); });
          step(whole, x);
        }
        alignas(64) float products[kLanes];
        V::store(products, V::sum_each(sums));
        simd::unroll<R>([&](auto r) {
          __builtin_memcpy(scores + r * kTile + key, products + r * kKeys, kKeys * sizeof(float));
        });
      }
    }
  }

  static void add_values(const dense::Params& p, const Keys& keys, Fetch& fetch,
                         const Number* weights, float* o) {
    const std::int64_t o_stride = p.scratch.o_stride;
    const int rows = p.gqa_group_size;
    for (int r = 0; r < rows;) {
      const Number* const w = weights + r * kTile;
      float* const out = o + r * o_stride;
      Fetch* const first = r == 0 ? &fetch : nullptr;
      if (rows - r >= 4) {
        add_columns<4>(p, keys, first, w, out);
        r += 4;
      } else if (rows - r >= 2) {
        add_columns<2>(p, keys, first, w, out);
        r += 2;
      } else {
        add_columns<1>(p, keys, first, w, out);
        r += 1;
      }
    }
  }

  template <int R>
  static void add_columns(const dense::Params& p, const Keys& keys, Fetch* fetch,
                          const Number* weights, float* o) {
    const std::int64_t dims = p.head_dim_vo;
    const std::int64_t whole = dims / Unit::kNumbers * Unit::kNumbers;
    std::int64_t d = 0;
    for (; d + kGroups * Unit::kNumbers <= whole; d += kGroups * Unit::kNumbers) {
      add_block<R, kGroups, false>(p, keys, fetch, weights, d, 0, o);
      fetch = nullptr;
    }
    for (; d < whole; d += Unit::kNumbers) add_block<R, 1, false>(p, keys, fetch, weights, d, 0, o);
    if (d < dims) add_block<R, 1, true>(p, keys, fetch, weights, d, static_cast<int>(dims - d), o);
  }

  /// o[R rows][G operands of columns from d] += weights · values.
  template <int R, int G, bool kTail>
  static void add_block(const dense::Params& p, const Keys& keys, Fetch* fetch,
                        const Number* weights, std::int64_t d, int tail, float* o) {
    constexpr int kWide = G * Unit::kPair;
    const std::int64_t o_stride = p.scratch.o_stride;
    F sums[R * kWide];
    simd::unroll<R>([&](auto r) {
      simd::unroll<kWide>(
          [&](auto c) { sums[r * kWide + c] = V::load(o + r * o_stride + d + c * kLanes); });
    });
    for (int key = keys.rows.from / Unit::kPair * Unit::kPair; key < keys.rows.to;
         key += Unit::kPair) {
      Operand x[kWide];
      simd::unroll<G>([&](auto g) {
        Operand in[Unit::kPair];
        simd::unroll<Unit::kPair>([&](auto i) {
          // The odd one out of a pair has weight 0; its neighbour stands in for it.
          const char* const v = keys.v(key + i) + (d + g * Unit::kNumbers) * kBytes;
          if constexpr (kTail)
            in[i] = Unit::template load_as_n<T>(v, tail);
          else
            in[i] = Unit::template load_as<T>(v);
        });
        Operand out[Unit::kPair];
        Unit::columns(in, out);
        simd::unroll<Unit::kPair>([&](auto i) { x[g * Unit::kPair + i] = out[i]; });
      });
      if (fetch != nullptr && key % kKeysAStep == 0) fetch->step();
      simd::unroll<R>([&](auto r) {
        const Operand weight = Unit::broadcast(weights + r * kTile + key);
        simd::unroll<kWide>([&](auto c) {
          sums[r * kWide + c] = Unit::multiply_add(weight, x[c], sums[r * kWide + c]);
        });
      });
    }
    simd::unroll<R>([&](auto r) {
      simd::unroll<kWide>(
          [&](auto c) { V::store(o + r * o_stride + d + c * kLanes, sums[r * kWide + c]); });
    });
  }
};

}  // namespace attune::kernels::paged_decode
