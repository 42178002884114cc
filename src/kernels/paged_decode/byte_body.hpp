// Decode of keys and values that are signed bytes, multiplied as such (layer kernels).
//
// Nothing is widened: both products are of bytes in fours, summed in 32 bits without any error. A
// query becomes two signed digits (as in tile/digits.hpp), the weights of a row and tile two
// unsigned ones of the row's largest weight there: 16 bits, so a small weight keeps what a bf16
// would of it down to 2^-8 of the largest. Keys are raised by 128 to be the unsigned side; what
// that adds to a score is the same for all keys and is what sums start from. Values meet their
// weights four keys a lane, in the order that interleaving gives; o is put in order at the end.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/paged_decode/fetch.hpp"
#include "kernels/paged_decode/loop.hpp"
#include "kernels/paged_decode/policy.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/softmax/online_softmax.hpp"

namespace attune::kernels::paged_decode {

template <class Unit>
struct ByteBody {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Fours = typename V::Fours;
  using Sums = typename V::Sums;
  using Number = typename Unit::Number;
  using Io = dense::RowIo<Unit, DType::i8>;
  using Softmax = softmax::OnlineSoftmax<dense::FmaUnit<V>>;  ///< weights in fp32
  using Run = typename Fetch<V>::Run;
  using Ahead = typename Fetch<V>::Ahead;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kTile = dense::kKeyTile;
  static constexpr std::int64_t kLine = Fetch<V>::kLine;
  static constexpr int kStep = 64;  ///< bytes of an operand
  static constexpr int kFour = 4;   ///< keys whose values a lane holds
  static constexpr int kHalf = 2;   ///< operands that half of 64 columns are
  static constexpr int kPackedKeys = 0;

  static void run(const dense::Params& p, const dense::Item& item, void* scratch) {
    using Around = Loop<Unit, DType::i8>;
    if (p.head_dim_qk == kUsual && p.head_dim_vo == kUsual)
      Around::template run<Math<kUsual>>(p, item, scratch);
    else
      Around::template run<Math<0>>(p, item, scratch);
  }

 private:
  static constexpr int kUsual = 128;  ///< the head dim that has code of its own
  /// 2^kQueryBits is also what keys are raised by: split's `start` counts on it.
  static constexpr int kQueryBits = 7;
  static constexpr float kQueryLargest = 127.0f * 128.0f + 63.0f;
  static constexpr int kWeightBits = 8;
  static constexpr float kWeightLargest = 65535.0f;

  /// Weights of a row and tile: unit * (256 high + low).
  struct Weights {
    alignas(64) std::uint8_t high[kTile];
    std::uint8_t low[kTile];
    float unit;
  };

  template <int kDims>
  class Math {
   public:
    Math(const dense::Params& p, const dense::Item& item, void* scratch)
        : p_(p),
          q_(reinterpret_cast<Number*>(static_cast<char*>(scratch) + p.scratch.q)),
          o_(reinterpret_cast<float*>(static_cast<char*>(scratch) + p.scratch.o)),
          together_keys_(lie_together(p.kv.page_size, p.kv.k_token_stride)),
          together_values_(lie_together(p.kv.page_size, p.kv.v_token_stride)) {
      Io::load_queries(p, item, q_);
      for (int r = 0; r < item.num_heads; ++r)
        value_[r] = split(q_ + r * p.scratch.q_stride, p.scratch.q_stride, start_ + r * kLanes);
    }

    void score(const Run& run, int n) {
      const int first = n * p_.gqa_group_size;
      const bool together = together_keys_ && run.to - run.from == kSpan;
      for (int r = 0; r < p_.gqa_group_size;) {
        const int row = first + r;
        const int left = p_.gqa_group_size - r;
        const auto* const q = reinterpret_cast<const std::int8_t*>(q_ + row * p_.scratch.q_stride);
        const std::int32_t* const start = start_ + row * kLanes;
        float* const scores = scores_ + row * kTile;
        if (left >= 4) {
          if (kDims > 0 && together)
            score_together<kDims>(run, q, start, scores);
          else
            score_rows<4>(p_, run, q, start, scores);
          r += 4;
        } else if (left >= 2) {
          score_rows<2>(p_, run, q, start, scores);
          r += 2;
        } else {
          score_rows<1>(p_, run, q, start, scores);
          r += 1;
        }
      }
    }

    float weigh(int row, int num_keys, softmax::RowRule& rule, float& maximum, float* sum) {
      const float scale = rule.scale;
      rule.scale *= value_[row];
      float* const scores = scores_ + row * kTile;
      const bool whole = rule.from == 0 && rule.to == kTile && Softmax::only_scales(rule);
      const float shrink = whole ? Softmax::template update_whole<kTile>(
                                       scores, Softmax::log2_factor(rule), maximum, sum, fine_)
                                 : Softmax::update(scores, num_keys, rule, maximum, sum, fine_);
      rule.scale = scale;
      round(fine_, num_keys, weights_[row]);
      return shrink;
    }

    void add_values(const Run& run, int n) {
      const int first = n * p_.gqa_group_size;
      const bool together = together_values_ && run.to - run.from == kSpan;
      for (int r = 0; r < p_.gqa_group_size;) {
        const int left = p_.gqa_group_size - r;
        const Weights* const weights = weights_ + first + r;
        float* const o = o_ + (first + r) * p_.scratch.o_stride;
        if (left >= 4) {
          if (kDims > 0 && together)
            add_together<kDims>(run, weights, o);
          else
            add_rows<4>(p_, run, weights, o);
          r += 4;
        } else if (left >= 2) {
          add_rows<2>(p_, run, weights, o);
          r += 2;
        } else {
          add_rows<1>(p_, run, weights, o);
          r += 1;
        }
      }
    }

    void restore(int row) const {
      float* const o = o_ + row * p_.scratch.o_stride;
      for (std::int64_t d = 0; d < p_.scratch.o_stride; d += kStep) V::restore_order(o + d);
    }

   private:
    /// Whether the keys of every whole run follow each other.
    static bool lie_together(std::int64_t page_size, std::int64_t token_stride) {
      return page_size % kSpan == 0 && token_stride == kDims;
    }

    const dense::Params& p_;
    Number* const q_;
    float* const o_;
    const bool together_keys_;
    const bool together_values_;
    float value_[kMaxRows];  ///< of one unit of a row's queries
    alignas(64) std::int32_t start_[kMaxRows * kLanes];
    alignas(64) float scores_[kMaxRows * kTile];
    alignas(64) float fine_[kTile];
    Weights weights_[kMaxRows];
  };

  /// A row of bf16 becomes digits in place: 64 high ones, 64 low ones, and so on. `start` receives
  /// what sums begin with, to be multiplied by 2^kQueryBits. Returns the value of one unit; NaN
  /// where a number is not finite.
  static float split(Number* row, std::int64_t count, std::int32_t* start) {
    const auto number = [](const Number* at) { return V::template load_as<DType::bf16>(at); };
    F most = V::zero();
    F check = V::zero();
    for (std::int64_t i = 0; i < count; i += kLanes) {
      most = V::max(V::abs(number(row + i)), most);
      check = V::fma(number(row + i), V::zero(), check);
    }
    const float largest = V::largest(most);
    // A score of very many dims stays below 2^31 with smaller numbers; on the way to it sums may
    // wrap around.
    constexpr float kMostSum = 16777216.0f;
    const float by_dims = kMostSum / static_cast<float>(count);
    const float limit = by_dims < kQueryLargest ? by_dims : kQueryLargest;
    // Below it the inverse is infinite; queries as small as that count as zeros.
    constexpr float kLeast = 1e-33f;
    const F times = V::set(largest > kLeast ? limit / largest : 0.0f);
    const Fours ones = V::ones();
    Sums high = V::no_sums();
    Sums low = V::no_sums();
    for (std::int64_t i = 0; i < count; i += kStep) {
      alignas(64) std::int8_t digits[2][kStep];
      for (int d = 0; d < kStep; d += kLanes)
        V::template store_digits<kQueryBits, true>(number(row + i + d), times, digits[0] + d,
                                                   digits[1] + d);
      high = V::dot_fours(high, ones, V::load_fours(digits[0]));
      low = V::dot_fours(low, ones, V::load_fours(digits[1]));
      __builtin_memcpy(row + i, digits, sizeof digits);
    }
    V::store_sums(start, V::negate(V::add_sums(V::template times_power<kQueryBits>(high), low)));
    return largest / limit + V::sum(check);
  }

  /// NaN among the weights counts as nothing here: it is in the row's sum.
  static void round(const float* fine, int num_keys, Weights& weights) {
    const int padded = (num_keys + kLanes - 1) / kLanes * kLanes;
    F most = V::zero();
    for (int i = 0; i < padded; i += kLanes) most = V::max(V::load(fine + i), most);
    const float largest = V::largest(most);
    constexpr float kLeast = 1e-30f;
    const F times = V::set(largest > kLeast ? kWeightLargest / largest : 0.0f);
    weights.unit = largest / kWeightLargest;
    for (int i = 0; i < padded; i += kLanes)
      V::template store_digits<kWeightBits, false>(V::load(fine + i), times, weights.high + i,
                                                   weights.low + i);
  }

  /// Scores of R rows with the keys of a run.
  template <int R>
  [[gnu::noinline]] static void score_rows(const dense::Params& p, const Run& run,
                                           const std::int8_t* q, const std::int32_t* start,
                                           float* scores) {
    constexpr int kKeys = kLanes / R;
    const std::int64_t q_bytes = p.scratch.q_stride * 2;
    for (int key = run.from / kKeys * kKeys; key < run.to; key += kKeys) {
      const char* k[kKeys];
      simd::unroll<kKeys>([&](auto i) { k[i] = run.row(key + i); });
      Sums sums[kLanes];
      begin_sums<R>(start, sums);
      for (int digit = 0; digit < 2; ++digit) {
        for (std::int64_t d = 0; d < p.head_dim_qk; d += kStep) {
          Fours x[kKeys];
          simd::unroll<kKeys>([&](auto i) {
            x[i] = V::raise(V::load_fours_n(k[i] + d, p.head_dim_qk - d));
            if (digit == 0) run.asked.ask(k[i] + d, key % kSpan + i, d);
          });
          multiply<R>(q + 2 * d + digit * kStep, q_bytes, x, sums, [](auto) {});
        }
        if (digit == 0) raise_sums(sums);
      }
      store_scores<R>(sums, scores + key);
    }
  }

  /// The same of four rows with 16 keys that follow each other.
  template <int kDims>
  [[gnu::noinline]] static void score_together(const Run& run, const std::int8_t* q,
                                               const std::int32_t* start, float* scores) {
    constexpr int kRows = 4;
    constexpr int kKeys = kLanes / kRows;
    constexpr int kSteps = kDims / kStep;
    const char* k = run.row(run.from);
    Ahead ahead(run.asked, k);
    for (int key = run.from; key < run.to; key += kKeys) {
      Fours x[kSteps][kKeys];
      simd::unroll<kKeys * kSteps>([&](auto i) {
        constexpr int n = i % kKeys;
        constexpr int step = i / kKeys;
        x[step][n] = V::raise(V::load_fours(k + n * kDims + step * kStep));
      });
      Sums sums[kLanes];
      begin_sums<kRows>(start, sums);
      simd::unroll<2>([&](auto digit) {
        simd::unroll<kSteps>([&](auto step) {
          multiply<kRows>(q + 2 * step * kStep + digit * kStep, 2 * kDims, x[step], sums,
                          [&](auto i) {
                            constexpr int kAt = (digit * kSteps + step) * kKeys + i;
                            if constexpr (kAt % 2 == 0) ahead.template ask<kAt / 2 * kLine>();
                          });
        });
        if constexpr (digit == 0) raise_sums(sums);
      });
      store_scores<kRows>(sums, scores + key);
      k += kKeys * kDims;
      ahead.move(kKeys * kDims);
    }
  }

  template <int R>
  [[gnu::always_inline]] static void begin_sums(const std::int32_t* start, Sums (&sums)[kLanes]) {
    simd::unroll<kLanes>(
        [&](auto i) { sums[i] = V::load_sums(start + i / (kLanes / R) * kLanes); });
  }
  /// From the high digits' sums to the low ones'.
  [[gnu::always_inline]] static void raise_sums(Sums (&sums)[kLanes]) {
    simd::unroll<kLanes>([&](auto i) { sums[i] = V::template times_power<kQueryBits>(sums[i]); });
  }
  template <int R>
  [[gnu::always_inline]] static void store_scores(const Sums (&sums)[kLanes], float* scores) {
    constexpr int kKeys = kLanes / R;
    alignas(64) float products[kLanes];
    V::store(products, V::total_each(sums));
    simd::unroll<R>([&](auto r) {
      __builtin_memcpy(scores + r * kTile, products + r * kKeys, kKeys * sizeof(float));
    });
  }

  /// sums[R rows][keys] += queries · keys of 64 dims; `beside(i)` is done once a key.
  template <int R, int kKeys, class Beside>
  [[gnu::always_inline]] static void multiply(const std::int8_t* q, std::int64_t q_bytes,
                                              const Fours (&x)[kKeys], Sums (&sums)[R * kKeys],
                                              Beside&& beside) {
    simd::unroll<R>([&](auto r) {
      const Fours query = V::load_fours(q + r * q_bytes);
      simd::unroll<kKeys>([&](auto i) {
        sums[r * kKeys + i] = V::dot_fours(sums[r * kKeys + i], x[i], query);
        constexpr int kDone = r * kKeys + i;
        if constexpr (kDone % R == 0) beside(std::integral_constant<int, kDone / R>());
      });
    });
  }

  /// o of R rows += weights · values of a run.
  template <int R>
  static void add_rows(const dense::Params& p, const Run& run, const Weights* weights, float* o) {
    for (std::int64_t d = 0; d < p.head_dim_vo; d += kStep) {
      add_half<R, 0>(p, run, weights, d, o);
      add_half<R, 1>(p, run, weights, d, o);
    }
  }

  /// Half of the 64 columns from d.
  template <int R, int kWhich>
  [[gnu::noinline]] static void add_half(const dense::Params& p, const Run& run,
                                         const Weights* weights, std::int64_t d, float* o) {
    Sums high[R * kHalf];
    Sums low[R * kHalf];
    simd::unroll<R * kHalf>([&](auto i) { high[i] = low[i] = V::no_sums(); });
    const auto* const of_rows = reinterpret_cast<const std::uint8_t*>(weights);
    for (int key = run.from / kFour * kFour; key < run.to; key += kFour) {
      Fours in[kFour];
      simd::unroll<kFour>([&](auto i) {
        const char* const v = run.row(key + i) + d;
        in[i] = V::load_fours_n(v, p.head_dim_vo - d);
        if constexpr (kWhich == 0) run.asked.ask(v, key % kSpan + i, d);
      });
      add_four<R, kWhich>(in, of_rows + key, high, low);
    }
    add_sums<R>(high, low, weights, o + d + kWhich * kHalf * kLanes, p.scratch.o_stride);
  }

  /// The same of four rows, all columns and 16 keys that follow each other.
  template <int kDims>
  [[gnu::noinline]] static void add_together(const Run& run, const Weights* weights, float* o) {
    const char* const v = run.row(run.from);
    const auto* const of_rows = reinterpret_cast<const std::uint8_t*>(weights) + run.from;
    Ahead ahead(run.asked, v);
    for (int d = 0; d < kDims; d += kStep) {
      add_half_together<0, kDims>(v + d, ahead, of_rows, weights, o + d);
      add_half_together<1, kDims>(v + d, ahead, of_rows, weights, o + d + kHalf * kLanes);
    }
  }

  template <int kWhich, int kDims>
  [[gnu::always_inline]] static void add_half_together(const char* v, Ahead& ahead,
                                                       const std::uint8_t* of_rows,
                                                       const Weights* weights, float* o) {
    constexpr int kRows = 4;
    Sums high[kRows * kHalf];
    Sums low[kRows * kHalf];
    simd::unroll<kRows * kHalf>([&](auto i) { high[i] = low[i] = V::no_sums(); });
    add_four_together<0, kWhich, kDims>(v, ahead, of_rows, high, low);
    add_four_together<1, kWhich, kDims>(v, ahead, of_rows, high, low);
    add_four_together<2, kWhich, kDims>(v, ahead, of_rows, high, low);
    add_four_together<3, kWhich, kDims>(v, ahead, of_rows, high, low);
    ahead.move(kStep / 2 * kSpan);  // a half's share of the lines of a run
    add_sums<kRows>(high, low, weights, o, kDims);
  }

  template <int kNumber, int kWhich, int kDims>
  [[gnu::always_inline]] static void add_four_together(const char* v, const Ahead& ahead,
                                                       const std::uint8_t* of_rows,
                                                       Sums (&high)[4 * kHalf],
                                                       Sums (&low)[4 * kHalf]) {
    Fours in[kFour];
    simd::unroll<kFour>([&](auto i) { in[i] = V::load_fours(v + (kNumber * kFour + i) * kDims); });
    add_four<4, kWhich>(in, of_rows + kNumber * kFour, high, low);
    ahead.template ask<2 * kNumber * kLine>();
    ahead.template ask<(2 * kNumber + 1) * kLine>();
  }

  /// `of_rows`: the first row's high weights of these four keys.
  template <int R, int kWhich>
  [[gnu::always_inline]] static void add_four(const Fours (&in)[kFour], const std::uint8_t* of_rows,
                                              Sums (&high)[R * kHalf], Sums (&low)[R * kHalf]) {
    Fours x[kHalf];
    V::template interleave_fours<kWhich>(in, x);
    simd::unroll<R>([&](auto r) {
      const Fours upper = V::broadcast_four(of_rows + r * sizeof(Weights));
      const Fours lower = V::broadcast_four(of_rows + r * sizeof(Weights) + kTile);
      simd::unroll<kHalf>([&](auto c) {
        high[r * kHalf + c] = V::dot_fours(high[r * kHalf + c], upper, x[c]);
        low[r * kHalf + c] = V::dot_fours(low[r * kHalf + c], lower, x[c]);
      });
    });
  }

  template <int R>
  [[gnu::always_inline]] static void add_sums(const Sums (&high)[R * kHalf],
                                              const Sums (&low)[R * kHalf], const Weights* weights,
                                              float* o, std::int64_t o_stride) {
    simd::unroll<R * kHalf>([&](auto i) {
      float* const to = o + i / kHalf * o_stride + i % kHalf * kLanes;
      const Sums both = V::add_sums(V::template times_power<kWeightBits>(high[i]), low[i]);
      V::store(to, V::fma(V::to_floats(both), V::set(weights[i / kHalf].unit), V::load(to)));
    });
  }
};

}  // namespace attune::kernels::paged_decode
