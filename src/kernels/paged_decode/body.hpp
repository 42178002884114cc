// Decode: one query token, the heads of one KV head, a range of keys read in place (layer kernels).
//
// Nothing is packed or gathered: each key is loaded once, as it lies in its page, and meets all
// heads of its group in registers; each value likewise. Rows of products go through the same online
// softmax as prefill, a tile of keys at a time, while the next tile is being fetched.
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
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
    auto* const scores = reinterpret_cast<float*>(base + p.scratch.scores);
    auto* const weights = reinterpret_cast<Number*>(base + p.scratch.weights);
    const int rows = item.num_heads;
    const std::int64_t o_stride = p.scratch.o_stride;

    Io::load_queries(p, item, q);
    for (int r = 0; r < rows; ++r) maximum[r] = softmax::kNone;
    for (std::int64_t i = 0; i < rows * kLanes; i += kLanes) V::store(sum + i, V::zero());
    for (std::int64_t i = 0; i < rows * o_stride; i += kLanes) V::store(o + i, V::zero());

    softmax::RowRule rule = Io::common_rule(p, item);
    dense::TileRows tiles[2];
    std::int64_t tile = item.kv_begin / kTile * kTile;
    if (tile < item.kv_end) Io::locate(p, item, tile, tiles[0]);
    for (int now = 0; tile < item.kv_end; tile += kTile, now ^= 1) {
      const dense::TileRows& keys = tiles[now];
      dense::TileRows& next = tiles[now ^ 1];
      if (tile + kTile < item.kv_end) {
        Io::locate(p, item, tile + kTile, next);
      } else {
        next.from = next.to = 0;
      }

      score_rows(p, keys, next, q, rows, scores);
      for (int r = 0; r < rows; ++r) {
        Io::set_rule(p, item, 0, r, tile, keys.from, keys.to, rule);
        softmax::OnlineSoftmax<Unit>::update(scores + r * kTile, keys.to, rule, maximum[r],
                                             sum + r * kLanes, o + r * o_stride, o_stride,
                                             weights + r * kTile);
      }
      add_values(p, keys, next, weights, rows, o);
    }
    for (int r = 0; r < rows; ++r)
      Io::finish(p, item, r, o + r * o_stride, maximum[r], sum + r * kLanes);
  }

 private:
  static void score_rows(const dense::Params& p, const dense::TileRows& keys,
                         const dense::TileRows& next, const Number* q, int rows, float* scores) {
    for (int r = 0; r < rows;) {
      const Number* const qr = q + r * p.scratch.q_stride;
      float* const out = scores + r * kTile;
      const dense::TileRows* const fetch = r == 0 ? &next : nullptr;
      if (kLanes >= 4 && rows - r >= 4) {
        score_block<4>(p, keys, fetch, qr, out);
        r += 4;
      } else if (kLanes >= 2 && rows - r >= 2) {
        score_block<2>(p, keys, fetch, qr, out);
        r += 2;
      } else {
        score_block<1>(p, keys, fetch, qr, out);
        r += 1;
      }
    }
  }

  /// R rows against the whole tile; kLanes sums at a time, so that they are reduced together.
  template <int R>
  static void score_block(const dense::Params& p, const dense::TileRows& keys,
                          const dense::TileRows* next, const Number* q, float* scores) {
    if constexpr (R <= kLanes) {
      constexpr int kKeys = kLanes / R;
      const std::int64_t q_stride = p.scratch.q_stride;
      const std::int64_t whole = p.head_dim_qk / Unit::kNumbers * Unit::kNumbers;
      const int rest = static_cast<int>(p.head_dim_qk - whole);
      for (int key = keys.from / kKeys * kKeys; key < keys.to; key += kKeys) {
        const char* k[kKeys];  // beyond the tile's ends a real key stands in; its sums are hidden
        simd::unroll<kKeys>([&](auto i) {
          const int at = key + i < keys.from ? keys.from
                         : key + i < keys.to ? key + i
                                             : keys.to - 1;
          k[i] = keys.k[at];
        });
        if (next != nullptr)
          for (int i = key; i < key + kKeys && i < next->to; ++i)
            Io::prefetch(next->k[i], p.head_dim_qk * kBytes);

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

  static void add_values(const dense::Params& p, const dense::TileRows& keys,
                         const dense::TileRows& next, const Number* weights, int rows, float* o) {
    const std::int64_t o_stride = p.scratch.o_stride;
    for (int r = 0; r < rows;) {
      const Number* const w = weights + r * kTile;
      float* const out = o + r * o_stride;
      const dense::TileRows* const fetch = r == 0 ? &next : nullptr;
      if (rows - r >= 4) {
        add_columns<4>(p, keys, fetch, w, out);
        r += 4;
      } else if (rows - r >= 2) {
        add_columns<2>(p, keys, fetch, w, out);
        r += 2;
      } else {
        add_columns<1>(p, keys, fetch, w, out);
        r += 1;
      }
    }
  }

  template <int R>
  static void add_columns(const dense::Params& p, const dense::TileRows& keys,
                          const dense::TileRows* next, const Number* weights, float* o) {
    const std::int64_t dims = p.head_dim_vo;
    const std::int64_t whole = dims / Unit::kNumbers * Unit::kNumbers;
    std::int64_t d = 0;
    for (; d + kGroups * Unit::kNumbers <= whole; d += kGroups * Unit::kNumbers) {
      add_block<R, kGroups, false>(p, keys, next, weights, d, 0, o);
      next = nullptr;
    }
    for (; d < whole; d += Unit::kNumbers) add_block<R, 1, false>(p, keys, next, weights, d, 0, o);
    if (d < dims) add_block<R, 1, true>(p, keys, next, weights, d, static_cast<int>(dims - d), o);
  }

  /// o[R rows][G operands of columns from d] += weights · values.
  template <int R, int G, bool kTail>
  static void add_block(const dense::Params& p, const dense::TileRows& keys,
                        const dense::TileRows* next, const Number* weights, std::int64_t d,
                        int tail, float* o) {
    constexpr int kWide = G * Unit::kPair;
    const std::int64_t o_stride = p.scratch.o_stride;
    F sums[R * kWide];
    simd::unroll<R>([&](auto r) {
      simd::unroll<kWide>(
          [&](auto c) { sums[r * kWide + c] = V::load(o + r * o_stride + d + c * kLanes); });
    });
    for (int key = keys.from / Unit::kPair * Unit::kPair; key < keys.to; key += Unit::kPair) {
      Operand x[kWide];
      simd::unroll<G>([&](auto g) {
        Operand in[Unit::kPair];
        simd::unroll<Unit::kPair>([&](auto i) {
          // The odd one out of a pair has weight 0; its neighbour stands in for it.
          const int at = key + i < keys.from ? keys.from : key + i < keys.to ? key + i : key;
          const char* const v = keys.v[at] + (d + g * Unit::kNumbers) * kBytes;
          if constexpr (kTail)
            in[i] = Unit::template load_as_n<T>(v, tail);
          else
            in[i] = Unit::template load_as<T>(v);
        });
        Operand out[Unit::kPair];
        Unit::columns(in, out);
        simd::unroll<Unit::kPair>([&](auto i) { x[g * Unit::kPair + i] = out[i]; });
      });
      if (next != nullptr)
        for (int i = key; i < key + Unit::kPair && i < next->to; ++i)
          Io::prefetch(next->v[i], p.head_dim_vo * kBytes);
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
