// Heads are lanes: a key's number meets that of all heads in one product, and only the finished
// score is summed across lanes. A score's bits do not depend on which keys are scored beside it.
#pragma once

#include <cstdint>

#include "base/math.hpp"
#include "kernels/index_scores/params.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::index_scores {

template <class V, DType T>
struct Body {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;
  static constexpr std::int64_t kBytes = T == DType::f32 ? 4 : 2;

  /// Scores of keys [first, last), to scores[first …].
  static void run(const Params& p, std::int64_t first, std::int64_t last, float* scores,
                  float* scratch) {
    const std::int64_t width = base::round_up<std::int64_t>(p.num_heads, kLanes);
    float* const turned = scratch;  // [head_dim, width]
    float* const weights = turned + p.head_dim * width;
    float* const rows = weights + width;  // [kKeys, head_dim]
    turn_query(p, width, turned, weights);
    for (std::int64_t key = first; key < last; key += kKeys) {
      const int count = last - key < kKeys ? static_cast<int>(last - key) : kKeys;
      for (int i = 0; i < count; ++i) widen(p, key + i, rows + i * p.head_dim);
      // Behind the last key its products are made again, and forgotten.
      const float* row[kKeys];
      for (int i = 0; i < kKeys; ++i) row[i] = rows + (i < count ? i : count - 1) * p.head_dim;
      F totals[kKeys];
      for (F& total : totals) total = V::zero();
      for (std::int64_t h = 0; h < width;) {
        const std::int64_t left = (width - h) / kLanes;
        h += left >= 4   ? add_heads<4>(p, row, turned + h, weights + h, width, totals)
             : left >= 2 ? add_heads<2>(p, row, turned + h, weights + h, width, totals)
                         : add_heads<1>(p, row, turned + h, weights + h, width, totals);
      }
      for (int i = 0; i < count; ++i) scores[key + i] = V::sum(totals[i]);
    }
  }

 private:
  /// A head a lane, those beyond the last zero and without weight.
  static void turn_query(const Params& p, std::int64_t width, float* turned, float* weights) {
    for (std::int64_t h = 0; h < width; ++h) {
      weights[h] = h < p.num_heads ? p.weights[h] : 0.0f;
      for (int d = 0; d < p.head_dim; ++d) turned[d * width + h] = 0.0f;
    }
    switch (p.q_dtype) {
      case DType::f32: return turn_as<DType::f32>(p, width, turned);
      case DType::bf16: return turn_as<DType::bf16>(p, width, turned);
      default: return turn_as<DType::f16>(p, width, turned);
    }
  }

  template <DType Q>
  static void turn_as(const Params& p, std::int64_t width, float* turned) {
    constexpr std::int64_t kQueryBytes = Q == DType::f32 ? 4 : 2;
    const char* const q = static_cast<const char*>(p.q);
    float numbers[kLanes];
    for (int h = 0; h < p.num_heads; ++h)
      for (int d = 0; d < p.head_dim; d += kLanes) {
        const int n = p.head_dim - d < kLanes ? p.head_dim - d : kLanes;
        V::store(numbers, V::template load_as_n<Q>(q + (h * p.q_head_stride + d) * kQueryBytes, n));
        for (int i = 0; i < n; ++i) turned[(d + i) * width + h] = numbers[i];
      }
  }

  static void widen(const Params& p, std::int64_t key, float* row) {
    const std::int64_t at = p.pages == nullptr ? key * p.page_stride
                                               : p.pages[key / p.page_size] * p.page_stride +
                                                     key % p.page_size * p.token_stride;
    const char* const from = static_cast<const char*>(p.keys) + at * kBytes;
    for (int d = 0; d < p.head_dim; d += kLanes) {
      const int n = p.head_dim - d < kLanes ? p.head_dim - d : kLanes;
      V::store_n(row + d, V::template load_as_n<T>(from + d * kBytes, n), n);
    }
  }

  /// totals += weights * max(0, products) of kColumns vectors of heads; how many heads that is.
  template <int kColumns>
  static std::int64_t add_heads(const Params& p, const float* const (&row)[kKeys],
                                const float* turned, const float* weights, std::int64_t width,
                                F (&totals)[kKeys]) {
    F sums[kKeys * kColumns];
    for (F& sum : sums) sum = V::zero();
    for (int d = 0; d < p.head_dim; ++d) {
      F q[kColumns];
      simd::unroll<kColumns>([&](auto c) { q[c] = V::load(turned + d * width + c * kLanes); });
      simd::unroll<kKeys>([&](auto i) {
        const F key = V::set(row[i][d]);
        simd::unroll<kColumns>(
            [&](auto c) { sums[i * kColumns + c] = V::fma(key, q[c], sums[i * kColumns + c]); });
      });
    }
    simd::unroll<kKeys>([&](auto i) {
      simd::unroll<kColumns>([&](auto c) {
        const F seen = V::max(sums[i * kColumns + c], V::zero());
        totals[i] = V::fma(V::load(weights + c * kLanes), seen, totals[i]);
      });
    });
    return kColumns * kLanes;
  }
};

}  // namespace attune::kernels::index_scores
