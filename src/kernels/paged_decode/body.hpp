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
#include "kernels/paged_decode/loop.hpp"
#include "kernels/paged_decode/policy.hpp"
#include "kernels/paged_decode/together.hpp"
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
  using Run = typename Fetch<V>::Run;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;
  static constexpr std::int64_t kLine = Fetch<V>::kLine;
  static constexpr int kGroups = V::kNumColumns / Unit::kPair;  ///< operands a value tile is wide
  static constexpr int kRun = Unit::template kRun<T>;           ///< operands of a whole load
  static constexpr int kStep = kRun * Unit::kNumbers;
  static constexpr bool kTwoAtOnce = Unit::template kTwoAtOnce<T>;
  static constexpr std::int64_t kColumns = kGroups * Unit::kNumbers;  ///< of o, in registers
  static_assert(!kTwoAtOnce || kColumns == 64);

  static constexpr int kPackedKeys = 0;

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    using Around = Loop<Unit, T>;
    if (kUsual > 0 && p.head_dim_qk == kUsual && p.head_dim_vo == kUsual)
      Around::template run<Math<kUsual>>(p, item, scratch);
    else
      Around::template run<Math<0>>(p, item, scratch);
  }

 private:
  /// The head dim that most models have is worth code of its own on the fastest units; 0 = none.
  static constexpr int kUsual = Unit::kPair == 2 || Unit::kSplits ? 128 : 0;

  template <int kDims>
  class Math {
   public:
    Math(const dense::Params& p, const dense::Item& item, void* scratch)
        : p_(p),
          q_(reinterpret_cast<Number*>(static_cast<char*>(scratch) + p.scratch.q)),
          o_(reinterpret_cast<float*>(static_cast<char*>(scratch) + p.scratch.o)) {
      Io::load_queries(p, item, q_);
      if constexpr (kFours) {
        const bool fours = p.gqa_group_size % Four::kRows == 0;
        together_keys_ = fours && Four::everywhere(p.kv.page_size, p.kv.k_token_stride);
        together_values_ = fours && Four::everywhere(p.kv.page_size, p.kv.v_token_stride);
      }
      // The rest of a row is loaded as it lies.
      const std::int64_t whole = p.head_dim_qk / kStep * kStep;
      for (int r = 0; r < item.num_heads; ++r)
        Unit::template order_as_keys<T>(q_ + r * p.scratch.q_stride, whole);
    }

    void score(const Run& run, int n) {
      const int row = n * p_.gqa_group_size;
      if constexpr (kFours) {
        if (together_keys_ && run.to - run.from == kSpan) {
          for (int r = row; r < row + p_.gqa_group_size; r += Four::kRows)
            Four::score(run, q_ + r * kDims, scores_ + r * kTile);
          return;
        }
      }
      score_rows<kDims>(p_, run, q_ + row * p_.scratch.q_stride, scores_ + row * kTile);
    }
    float weigh(int row, int num_keys, const softmax::RowRule& rule, float& maximum, float* sum) {
      return Softmax::update(scores_ + row * kTile, num_keys, rule, maximum, sum,
                             weights_ + row * kTile);
    }
    void add_values(const Run& run, int n) {
      const int row = n * p_.gqa_group_size;
      if constexpr (kFours) {
        if (together_values_ && run.to - run.from == kSpan) {
          for (int r = row; r < row + p_.gqa_group_size; r += Four::kRows)
            Four::add_values(run, weights_ + r * kTile, o_ + r * kDims);
          return;
        }
      }
      Body::add_values<kDims>(p_, run, weights_ + row * kTile, o_ + row * p_.scratch.o_stride);
    }
    void restore([[maybe_unused]] int row) const {
      if constexpr (Unit::kSplits) {
        Unit::join(o_ + row * p_.scratch.o_stride, p_.head_dim_vo / kColumns * kColumns);
      }
      if constexpr (kTwoAtOnce) {
        float* const o = o_ + row * p_.scratch.o_stride;
        for (std::int64_t d = 0; d + kColumns <= p_.head_dim_vo; d += kColumns)
          Unit::restore(o + d);
      }
    }

   private:
    static constexpr bool kFours = kDims > 0 && kTwoAtOnce;
    using Four = Together<Unit, T, kDims>;

    const dense::Params& p_;
    Number* const q_;
    float* const o_;
    bool together_keys_ = false;
    bool together_values_ = false;
    alignas(64) float scores_[kMaxRows * kTile];
    alignas(64) Number weights_[kMaxRows * kTile];
  };

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
              constexpr int kRow = kLineNumber / kRowLines;
              constexpr int kAt = kLineNumber % kRowLines * kLine;
              run.asked.ask(k[kRow] + kAt, key % kSpan + kRow, kAt);
            });
          });
        } else {
          std::int64_t d = 0;
          for (; d + kStep <= p.head_dim_qk; d += kStep) {
            score_step<R>(k, q, q_stride, d, sums, [&](auto i) {
              if (d * kBytes % kLine == 0)
                run.asked.ask(k[i] + d * kBytes, key % kSpan + i, d * kBytes);
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
      Unit::template load_keys<T>(k[i] + d * kBytes, in);
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
      simd::unroll<Unit::kPair>([&](auto i) { v[i] = run.row(key + i) + d * kBytes; });
      Operand x[kWide];
      if constexpr (kTwoAtOnce && G == kGroups) {
        Unit::template load_columns<T>(v[0], v[1], x);
      } else {
        Operand in[G][Unit::kPair];
        simd::unroll<Unit::kPair>([&](auto i) {
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
        simd::unroll<G>([&](auto g) {
          Operand columns[Unit::kPair];
          Unit::columns(in[g], columns);
          simd::unroll<Unit::kPair>([&](auto i) { x[g * Unit::kPair + i] = columns[i]; });
        });
      }
      constexpr int kBlockBytes = static_cast<int>(G * Unit::kNumbers * kBytes);
      constexpr int kLines = Unit::kPair * ((kBlockBytes + kLine - 1) / kLine);
      constexpr bool kByRows = kDims > 0 && kDims / (G * Unit::kNumbers) == Unit::kPair;
      // Each block of columns fetches whole rows, its share of the run's.
      [[maybe_unused]] const char* fetched = v[0];
      [[maybe_unused]] int fetched_row = 0;
      if constexpr (kByRows) {
        const int block = static_cast<int>(d) / (G * Unit::kNumbers);
        const int begin = run.from / kSpan * kSpan;
        fetched_row = block * (kSpan / Unit::kPair) + (key - begin) / Unit::kPair;
        fetched = run.row(begin + fetched_row);
      }
      simd::unroll<R>([&](auto r) {
        const Operand weight = Unit::broadcast(weights + r * kTile + key);
        simd::unroll<kWide>([&](auto c) {
          sums[r * kWide + c] = Unit::multiply_add(weight, x[c], sums[r * kWide + c]);
        });
        simd::unroll<kLines>([&](auto line) {
          if constexpr (line % R != r) return;
          if constexpr (kByRows) {
            run.asked.ask(fetched + line * kLine, fetched_row, line * kLine);
          } else if (kBlockBytes >= kLine || d * kBytes % kLine == 0) {
            constexpr int kRow = line * Unit::kPair / kLines;
            constexpr int kAt = line % (kLines / Unit::kPair) * kLine;
            run.asked.ask(v[kRow] + kAt, key % kSpan + kRow, d * kBytes + kAt);
          }
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
