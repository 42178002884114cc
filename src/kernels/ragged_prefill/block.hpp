// The rows of one item in a thread's own memory, and what both prefill bodies do with them besides
// multiplying (layer kernels).
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/dense/rows.hpp"
#include "kernels/dense/unit.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/softmax/online_softmax.hpp"

namespace attune::kernels::ragged_prefill {

template <class Unit, DType T>
struct BlockOf {
  using V = typename Unit::V;
  using F = typename Unit::F;
  using Number = typename Unit::Number;
  using Io = dense::RowIo<Unit, T>;
  using Softmax = softmax::OnlineSoftmax<Unit>;
  static constexpr int kLanes = V::kLanes;
  static constexpr std::int64_t kBytes = dense::kBytes<T>;

  Number* q;
  float* o;
  float* maximum;
  float* sum;
  Number* k;  ///< packed
  Number* v;
  std::int64_t rows;

  /// Whether o can be summed where it is to be left, a partial state of whole strips.
  static bool sums_fit(const dense::Params& p, const dense::Item& item, std::int64_t strip_rows) {
    return item.partial_row >= 0 && p.scratch.o_stride == p.head_dim_vo &&
           item.num_tokens * item.num_heads % strip_rows == 0 &&
           (item.num_tokens == 1 || item.partial_stride == item.num_heads);
  }

  /// sums_in_place: o is where sums_fit says. Queries are to be loaded and o to be cleared.
  static BlockOf begin(const dense::Params& p, const dense::Item& item, void* scratch,
                       bool sums_in_place = false) {
    char* const base = static_cast<char*>(scratch);
    const BlockOf block{.q = reinterpret_cast<Number*>(base + p.scratch.q),
                        .o = sums_in_place ? p.partial_o + item.partial_row * p.head_dim_vo
                                           : reinterpret_cast<float*>(base + p.scratch.o),
                        .maximum = reinterpret_cast<float*>(base + p.scratch.maximum),
                        .sum = reinterpret_cast<float*>(base + p.scratch.sum),
                        .k = reinterpret_cast<Number*>(base + p.scratch.k),
                        .v = reinterpret_cast<Number*>(base + p.scratch.v),
                        .rows = item.num_tokens * item.num_heads};
    for (std::int64_t i = 0; i < block.rows; ++i) block.maximum[i] = softmax::kNone;
    for (std::int64_t i = 0; i < block.rows * kLanes; i += kLanes)
      V::store(block.sum + i, V::zero());
    return block;
  }

  void load_queries(const dense::Params& p, const dense::Item& item) const {
    Io::load_queries(p, item, q);
  }
  /// A row of queries where the caller left it; they are numbers of the unit.
  static const char* query(const dense::Params& p, const dense::Item& item, std::int64_t row) {
    return reinterpret_cast<const char*>(
        static_cast<const Number*>(p.q.data) +
        (item.first_token + row / item.num_heads) * p.q.token_stride +
        (item.first_head + row % item.num_heads) * p.q.head_stride);
  }
  void clear(const dense::Params& p) const {
    for (std::int64_t i = 0; i < rows * p.scratch.o_stride; i += kLanes) V::store(o + i, V::zero());
  }

  void finish(const dense::Params& p, const dense::Item& item) const {
    for (std::int64_t row = 0; row < rows; ++row)
      Io::finish(p, item, row, o + row * p.scratch.o_stride, maximum[row], sum + row * kLanes);
  }

  /// Nothing but the scale stands between the product and the logit of a visible key.
  static bool only_scales(const dense::Params& p, const softmax::RowRule& common) {
    return p.temperature == nullptr && p.alibi_slopes == nullptr && p.custom_mask == nullptr &&
           !p.block_mask.given() && Softmax::only_scales(common);
  }

  /// `count`: a multiple of 8 vectors.
  static bool all_finite(const Number* numbers, std::int64_t count) {
    // x * 0 is NaN unless x is finite, and NaN survives a sum. Several sums, so that none waits for
    // the one before.
    constexpr int kSums = 8;
    const F zero = V::zero();
    F sums[kSums];
    simd::unroll<kSums>([&](auto n) { sums[n] = zero; });
    for (std::int64_t i = 0; i < count; i += kSums * kLanes) {
      simd::unroll<kSums>([&](auto n) {
        const Number* const at = numbers + i + n * kLanes;
        if constexpr (Unit::kPair == 2)
          sums[n] = V::fma(V::template load_as<DType::bf16>(at), zero, sums[n]);
        else
          sums[n] = V::fma(V::load(at), zero, sums[n]);
      });
    }
    simd::unroll<kSums - 1>([&](auto n) { sums[n + 1] = V::add(sums[n], sums[n + 1]); });
    const float total = V::sum(sums[kSums - 1]);
    return total == total;
  }

  /// The slow, exact way for one row: only visible keys enter the arithmetic.
  static void add_visible_values(const dense::Params& p, const dense::TileRows& keys,
                                 const softmax::RowRule& rule, const Number* weights, float* o,
                                 std::int64_t weight_stride = Softmax::kWeightBlock) {
    for (int key = rule.from; key < rule.to; ++key) {
      const std::int64_t bit = rule.first_bit + key;
      if (rule.bits != nullptr && ((rule.bits[bit >> 3] >> (bit & 7)) & 1) == 0) continue;
      const F weight = weight_of(*Softmax::weight_at(weights, weight_stride, key));
      for (std::int64_t d = 0; d < p.head_dim_vo; d += kLanes) {
        const std::int64_t left = p.head_dim_vo - d;
        const int n = left < kLanes ? static_cast<int>(left) : kLanes;
        V::store(o + d, V::fma(weight, V::template load_as_n<T>(keys.v[key] + d * kBytes, n),
                               V::load(o + d)));
      }
    }
  }

 private:
  static F weight_of(Number number) {
    if constexpr (Unit::kPair == 2) {
      const std::uint32_t bits = static_cast<std::uint32_t>(number) << 16;
      float value;
      __builtin_memcpy(&value, &bits, sizeof value);
      return V::set(value);
    } else {
      return V::set(number);
    }
  }
};

}  // namespace attune::kernels::ragged_prefill
