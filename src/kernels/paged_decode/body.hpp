// Decode: one query token, the heads of some KV heads, a range of keys read in place (layer
// kernels).
//
// Nothing is packed or gathered: each key is loaded as it lies in its page and meets all heads of
// its group in registers; each value likewise. An item takes several KV heads, so that a tile of
// keys is a few runs of memory in either layout, and reads it in the order of its addresses: in HND
// a head's keys as far as they lie together, then the next head's; in NHD a few keys, head after
// head. fetch.hpp asks for the lines further on in that order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/paged_decode/fetch.hpp"
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
  using Softmax = softmax::OnlineSoftmax<Unit>;
  using Side = typename Fetch<V>::Side;
  using Run = typename Fetch<V>::Run;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static constexpr std::int64_t kLine = Fetch<V>::kLine;
  static constexpr int kGroups = V::kNumColumns / Unit::kPair;  ///< operands a value tile is wide
  static constexpr int kRun = Unit::template kRun<T>;           ///< operands of a whole load
  static constexpr int kStep = kRun * Unit::kNumbers;

  static constexpr int kPackedKeys = 0;

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    if (kUsual > 0 && p.head_dim_qk == kUsual && p.head_dim_vo == kUsual)
      run_with<kUsual>(p, item, scratch);
    else
      run_with<0>(p, item, scratch);
  }

 private:
  /// The head dim that most models have is worth code of its own on the fastest units; 0 = none.
  static constexpr int kUsual = Unit::kPair == 2 ? 128 : 0;

  template <int kDims>
  static void run_with(const dense::Params& p, const dense::Item& item, void* scratch) {
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

    alignas(64) float scores[kMaxRows * kTile];
    alignas(64) Number weights[kMaxRows * kTile];
    typename Fetch<V>::template Walk<kSpan> walk(item.num_kv_heads, p.head_dim_qk * kBytes);
    const auto keys_of = [&p](const dense::TileRows& t) {
      return Side{t.k, t.from, t.to, p.kv.k_head_stride * kBytes, p.head_dim_qk * kBytes};
    };
    const auto values_of = [&p](const dense::TileRows& t) {
      return Side{t.v, t.from, t.to, p.kv.v_head_stride * kBytes, p.head_dim_vo * kBytes};
    };
    dense::TileRows tiles[2];
    std::int64_t tile = item.kv_begin / kTile * kTile;
    locate(p, item, tile, base, 0, tiles[0]);
    for (int now = 0; tile < item.kv_end; tile += kTile, now ^= 1) {
      locate(p, item, tile + kTile, base, now ^ 1, tiles[now ^ 1]);
      const dense::TileRows& keys = tiles[now];
      walk.enter(keys_of(keys), values_of(keys), keys_of(tiles[now ^ 1]));
      for (int span = keys.from / kSpan * kSpan; span < keys.to; span += kSpan)
        for (int n = 0; n < item.num_kv_heads; ++n)
          score_rows<kDims>(p, walk.next(), q + n * group * p.scratch.q_stride,
                            scores + n * group * kTile);
      for (int n = 0; n < item.num_kv_heads; ++n) {
        softmax::RowRule rule = Io::common_rule(p, item, item.kv_head + n);
        for (int row = n * group; row < (n + 1) * group; ++row) {
          Io::set_rule(p, item, 0, row, tile, keys.from, keys.to, rule);
          const float shrink = Softmax::update(scores + row * kTile, keys.to, rule, maximum[row],
                                               sum + row * kLanes, weights + row * kTile);
          if (shrink != 1.0f) Softmax::scale(o + row * o_stride, o_stride, shrink);
        }
      }
      for (int span = keys.from / kSpan * kSpan; span < keys.to; span += kSpan)
        for (int n = 0; n < item.num_kv_heads; ++n)
          add_values<kDims>(p, walk.next(), weights + n * group * kTile, o + n * group * o_stride);
    }
    for (int r = 0; r < rows; ++r)
      Io::finish(p, item, r, o + r * o_stride, maximum[r], sum + r * kLanes);
  }

  /// Keys of a run: enough for one reduction of kLanes sums, and for o to stay in registers a
  /// while.
  static constexpr int kSpan = 16;

  /// Rows of the tile at key index `tile`; beyond its ends a real row stands in, whose products are
  /// hidden and whose weights are 0.
  static void locate(const dense::Params& p, const dense::Item& item, std::int64_t tile,
                     char* scratch, int turn, dense::TileRows& rows) {
    if (tile >= item.kv_end) {
      rows.from = rows.to = 0;
      return;
    }
    Io::find(p, item, tile, scratch, turn, rows);
    for (int i = 0; i < rows.from; ++i) {
      rows.k[i] = rows.k[rows.from];
      rows.v[i] = rows.v[rows.from];
    }
    for (int i = rows.to; i < kTile; ++i) {
      rows.k[i] = rows.k[rows.to - 1];
      rows.v[i] = rows.v[rows.to - 1];
    }
  }

  template <int kDims>
  static void score_rows(const dense::Params& p, const Run& run, const Number* q, float* scores) {
    const int rows = p.gqa_group_size;
    for (int r = 0; r < rows;) {
      const Number* const qr = q + r * p.scratch.q_stride;
      float* const out = scores + r * kTile;
      if (kLanes >= 4 && rows - r >= 4) {
        score_block<4, kDims>(p, run, qr, out);
        r += 4;
      } else if (kLanes >= 2 && rows - r >= 2) {
        score_block<2, kDims>(p, run, qr, out);
        r += 2;
      } else {
        score_block<1, kDims>(p, run, qr, out);
        r += 1;
      }
    }
  }

  /// R rows against the run; kLanes sums at a time, so that they are reduced together.
  template <int R, int kDims>
  [[gnu::noinline]] static void score_block(const dense::Params& p, const Run& run, const Number* q,
                                            float* scores) {
    if constexpr (R <= kLanes) {
      constexpr int kKeys = kLanes / R;
      const std::int64_t q_stride = kDims > 0 ? kDims : p.scratch.q_stride;
      for (int key = run.from / kKeys * kKeys; key < run.to; key += kKeys) {
        const char* k[kKeys];
        simd::unroll<kKeys>([&](auto i) { k[i] = run.row(key + i); });
        F sums[kLanes];
        simd::unroll<kLanes>([&](auto i) { sums[i] = V::zero(); });
        if constexpr (kDims > 0) {
          // Lines are asked for in the order of their addresses, whatever the products want next.
          constexpr int kRowLines = kDims * kBytes / kLine;
          static_assert(kStep * kBytes == kLine && kDims % kStep == 0);
          simd::unroll<kDims / kStep>([&](auto step) {
            score_step<R>(k, q, q_stride, step * kStep, sums, [&](auto i) {
              constexpr int kLineNumber = step * kKeys + i;
              run.fetch(k[kLineNumber / kRowLines] + kLineNumber % kRowLines * kLine);
            });
          });
        } else {
          std::int64_t d = 0;
          for (; d + kStep <= p.head_dim_qk; d += kStep) {
            score_step<R>(k, q, q_stride, d, sums, [&](auto i) {
              if (d * kBytes % kLine == 0) run.fetch(k[i] + d * kBytes);
            });
          }
          for (; d < p.head_dim_qk; d += Unit::kNumbers) {
            const int n = static_cast<int>(p.head_dim_qk - d);
            Operand x[kKeys];
            simd::unroll<kKeys>(
                [&](auto i) { x[i] = Unit::template load_as_n<T>(k[i] + d * kBytes, n); });
            multiply<R>(q + d, q_stride, x, sums, [](auto) {});
          }
        }
        alignas(64) float products[kLanes];
        V::store(products, V::sum_each(sums));
        simd::unroll<R>([&](auto r) {
          __builtin_memcpy(scores + r * kTile + key, products + r * kKeys, kKeys * sizeof(float));
        });
      }
    }
  }

  template <int R, int kKeys, class Beside>
  [[gnu::always_inline]] static void score_step(const char* const (&k)[kKeys], const Number* q,
                                                std::int64_t q_stride, std::int64_t d,
                                                F (&sums)[R * kKeys], Beside&& beside) {
    Operand x[kRun][kKeys];
    simd::unroll<kKeys>([&](auto i) {
      Operand in[kRun];
      Unit::template load_run<T>(k[i] + d * kBytes, in);
      simd::unroll<kRun>([&](auto j) { x[j][i] = in[j]; });
    });
    multiply<R>(q + d, q_stride, x[0], sums, beside);
    simd::unroll<kRun - 1>([&](auto j) {
      multiply<R>(q + d + (j + 1) * Unit::kNumbers, q_stride, x[j + 1], sums, [](auto) {});
    });
  }

  /// sums[R rows][keys] += queries · keys of one operand's numbers; `beside(i)` is done once a key,
  /// spread over the products.
  template <int R, int kKeys, class Beside>
  [[gnu::always_inline]] static void multiply(const Number* q, std::int64_t q_stride,
                                              const Operand (&x)[kKeys], F (&sums)[R * kKeys],
                                              Beside&& beside) {
    simd::unroll<R>([&](auto r) {
      const Operand query = Unit::load(q + r * q_stride);
      simd::unroll<kKeys>([&](auto i) {
        sums[r * kKeys + i] = Unit::multiply_add(query, x[i], sums[r * kKeys + i]);
        constexpr int kDone = r * kKeys + i;
        if constexpr (kDone % R == 0) beside(std::integral_constant<int, kDone / R>());
      });
    });
  }

  template <int kDims>
  static void add_values(const dense::Params& p, const Run& run, const Number* weights, float* o) {
    const std::int64_t o_stride = kDims > 0 ? kDims : p.scratch.o_stride;
    const int rows = p.gqa_group_size;
    for (int r = 0; r < rows;) {
      const Number* const w = weights + r * kTile;
      float* const out = o + r * o_stride;
      if (rows - r >= 4) {
        add_columns<4, kDims>(p, run, w, out);
        r += 4;
      } else if (rows - r >= 2) {
        add_columns<2, kDims>(p, run, w, out);
        r += 2;
      } else {
        add_columns<1, kDims>(p, run, w, out);
        r += 1;
      }
    }
  }

  template <int R, int kDims>
  static void add_columns(const dense::Params& p, const Run& run, const Number* weights, float* o) {
    const std::int64_t dims = kDims > 0 ? kDims : p.head_dim_vo;
    const std::int64_t whole = dims / Unit::kNumbers * Unit::kNumbers;
    std::int64_t d = 0;
    for (; d + kGroups * Unit::kNumbers <= whole; d += kGroups * Unit::kNumbers)
      add_block<R, kGroups, false, kDims>(p, run, weights, d, 0, o);
    for (; d < whole; d += Unit::kNumbers) add_block<R, 1, false, kDims>(p, run, weights, d, 0, o);
    if (d < dims) add_block<R, 1, true, kDims>(p, run, weights, d, static_cast<int>(dims - d), o);
  }

  /// o[R rows][G operands of columns from d] += weights · values.
  template <int R, int G, bool kTail, int kDims>
  [[gnu::noinline]] static void add_block(const dense::Params& p, const Run& run,
                                          const Number* weights, std::int64_t d, int tail,
                                          float* o) {
    constexpr int kWide = G * Unit::kPair;
    const std::int64_t o_stride = kDims > 0 ? kDims : p.scratch.o_stride;
    F sums[R * kWide];
    simd::unroll<R>([&](auto r) {
      simd::unroll<kWide>(
          [&](auto c) { sums[r * kWide + c] = V::load(o + r * o_stride + d + c * kLanes); });
    });
    for (int key = run.from / Unit::kPair * Unit::kPair; key < run.to; key += Unit::kPair) {
      // The odd one out of a pair has weight 0; its neighbour stands in for it.
      const char* v[Unit::kPair];
      Operand in[G][Unit::kPair];
      simd::unroll<Unit::kPair>([&](auto i) {
        v[i] = run.row(key + i) + d * kBytes;
        if constexpr (kTail) {
          in[0][i] = Unit::template load_as_n<T>(v[i], tail);
        } else if constexpr (G % kRun == 0) {
          simd::unroll<G / kRun>([&](auto g) {
            Operand loaded[kRun];
            Unit::template load_run<T>(v[i] + g * kRun * Unit::kNumbers * kBytes, loaded);
            simd::unroll<kRun>([&](auto j) { in[g * kRun + j][i] = loaded[j]; });
          });
        } else {
          in[0][i] = Unit::template load_as<T>(v[i]);
        }
      });
      Operand x[kWide];
      simd::unroll<G>([&](auto g) {
        Operand columns[Unit::kPair];
        Unit::columns(in[g], columns);
        simd::unroll<Unit::kPair>([&](auto i) { x[g * Unit::kPair + i] = columns[i]; });
      });
      constexpr int kBlockBytes = static_cast<int>(G * Unit::kNumbers * kBytes);
      constexpr int kLines = Unit::kPair * ((kBlockBytes + kLine - 1) / kLine);
      constexpr bool kByRows = kDims > 0 && kDims / (G * Unit::kNumbers) == Unit::kPair;
      // Each block of columns fetches whole rows, its share of the run's.
      const char* fetched = v[0];
      if constexpr (kByRows) {
        const int block = static_cast<int>(d) / (G * Unit::kNumbers);
        const int begin = run.from / kSpan * kSpan;
        fetched = run.row(begin + block * (kSpan / Unit::kPair) + (key - begin) / Unit::kPair);
      }
      simd::unroll<R>([&](auto r) {
        const Operand weight = Unit::broadcast(weights + r * kTile + key);
        simd::unroll<kWide>([&](auto c) {
          sums[r * kWide + c] = Unit::multiply_add(weight, x[c], sums[r * kWide + c]);
        });
        simd::unroll<kLines>([&](auto line) {
          if constexpr (line % R != r) return;
          if constexpr (kByRows)
            run.fetch(fetched + line * kLine);
          else if (kBlockBytes >= kLine || d * kBytes % kLine == 0)
            run.fetch(v[line * Unit::kPair / kLines] + line % (kLines / Unit::kPair) * kLine);
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
