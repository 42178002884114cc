// A few rows of x against every row of W (layer kernels): sums of each pair stay in vectors while k
// passes, weights become fp32 in registers. Several rows of W at once share the loads of x and give
// the prefetchers several streams.
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/gemv/params.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::gemv {

template <class V, DType T>
struct Body {
  using F = typename V::F;
  static constexpr std::int64_t kBytes = T == DType::f32 ? 4 : 2;

  static void multiply(const Params& p) {
    std::int64_t row = 0;
    for (; p.num_rows - row >= 4; row += 4) rows<4, 4>(p, row);
    for (; p.num_rows - row >= 2; row += 2) rows<2, 4>(p, row);
    for (; row < p.num_rows; ++row) rows<1, 4>(p, row);
  }

 private:
  template <int kRows, int kColumns>
  static void rows(const Params& p, std::int64_t row) {
    std::int64_t n = 0;
    for (; p.num_columns - n >= kColumns; n += kColumns) block<kRows, kColumns>(p, row, n);
    for (; n < p.num_columns; ++n) block<kRows, 1>(p, row, n);
  }

  template <int kRows, int kColumns>
  static void block(const Params& p, std::int64_t row, std::int64_t n) {
    const char* w = static_cast<const char*>(p.w) + n * p.k * kBytes;
    const float* x = p.x + row * p.x_stride;
    F sum[kRows][kColumns];
    simd::unroll<kRows>(
        [&](auto r) { simd::unroll<kColumns>([&](auto c) { sum[r][c] = V::zero(); }); });
    std::int64_t i = 0;
    for (; p.k - i >= V::kLanes; i += V::kLanes) {
      F column[kColumns];
      simd::unroll<kColumns>(
          [&](auto c) { column[c] = V::template load_as<T>(w + (c * p.k + i) * kBytes); });
      simd::unroll<kRows>([&](auto r) {
        const F a = V::load(x + r * p.x_stride + i);
        simd::unroll<kColumns>([&](auto c) { sum[r][c] = V::fma(a, column[c], sum[r][c]); });
      });
    }
    if (i < p.k) {
      const int left = static_cast<int>(p.k - i);
      simd::unroll<kColumns>([&](auto c) {
        const F column = V::template load_as_n<T>(w + (c * p.k + i) * kBytes, left);
        simd::unroll<kRows>([&](auto r) {
          sum[r][c] = V::fma(V::load_n(x + r * p.x_stride + i, left), column, sum[r][c]);
        });
      });
    }
    simd::unroll<kRows>([&](auto r) {
      float* y = p.y + (row + r) * p.y_stride + n;
      simd::unroll<kColumns>([&](auto c) {
        const float total = V::sum(sum[r][c]);
        y[c] = p.accumulate ? y[c] + total : total;
      });
    });
  }
};

}  // namespace attune::kernels::gemv
