// A few rows of x against every row of W (layer kernels). W is read nearly as one stream, fetched
// early; weights become fp32 in registers, sums stay in vectors while k passes. Every y is the sum
// of the same two partial sums for any number of rows: its bits do not depend on the neighbours.
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
  static constexpr int kSums = 2;  ///< that take turns, so that none waits for another

  static void multiply(const Params& p) {
    // Where four rows of x fill the first cache, two rows of W share each pass over them.
    constexpr std::int64_t kFirstCache = 32768;
    const bool pairs = 4 * p.k * std::int64_t{sizeof(float)} > kFirstCache;
    std::int64_t n = 0;
    if (pairs && p.num_rows >= 4)
      for (; p.num_columns - n >= 2; n += 2) columns<2>(p, n);
    for (; n < p.num_columns; ++n) columns<1>(p, n);
  }

 private:
  template <int kColumns>
  static void columns(const Params& p, std::int64_t n) {
    std::int64_t row = 0;
    for (; p.num_rows - row >= 4; row += 4) block<4, kColumns>(p, row, n);
    for (; p.num_rows - row >= 2; row += 2)
      simd::unroll<kColumns>([&](auto c) { block<2, 1>(p, row, n + c); });
    for (; row < p.num_rows; ++row)
      simd::unroll<kColumns>([&](auto c) { block<1, 1>(p, row, n + c); });
  }

  /// y[row … row + kRows, n … n + kColumns].
  template <int kRows, int kColumns>
  static void block(const Params& p, std::int64_t row, std::int64_t n) {
    constexpr std::int64_t kStep = kSums * V::kLanes;
    constexpr std::int64_t kVectorsOfLine = 64 / (V::kLanes * kBytes);
    // Fetched early: the same place in the next rows, or further on where rows are long.
    constexpr std::int64_t kFar = 4096;
    const std::int64_t row_bytes = p.k * kBytes;
    const std::int64_t next = kColumns * row_bytes;
    const std::int64_t ahead = kColumns > 1 && next <= 4 * kFar ? next : kFar;

    const char* w = static_cast<const char*>(p.w) + n * row_bytes;
    const float* x = p.x + row * p.x_stride;
    F sum[kRows][kColumns][kSums];
    simd::unroll<kRows>([&](auto r) {
      simd::unroll<kColumns>(
          [&](auto c) { simd::unroll<kSums>([&](auto s) { sum[r][c][s] = V::zero(); }); });
    });
    std::int64_t i = 0;
    for (; p.k - i >= kStep; i += kStep) {
      simd::unroll<kSums>([&](auto s) {
        const std::int64_t at = i + s * V::kLanes;
        F column[kColumns];
        simd::unroll<kColumns>([&](auto c) {
          const char* place = w + c * row_bytes + at * kBytes;
          if constexpr (kVectorsOfLine <= 1 || s % kVectorsOfLine == 0) V::prefetch(place + ahead);
          column[c] = V::template load_as<T>(place);
        });
        simd::unroll<kRows>([&](auto r) {
          const F a = V::load(x + r * p.x_stride + at);
          simd::unroll<kColumns>(
              [&](auto c) { sum[r][c][s] = V::fma(a, column[c], sum[r][c][s]); });
        });
      });
    }
    for (; i < p.k; i += V::kLanes) {
      const std::int64_t left = p.k - i;
      const int lanes = left < V::kLanes ? static_cast<int>(left) : V::kLanes;
      simd::unroll<kColumns>([&](auto c) {
        const F column = V::template load_as_n<T>(w + c * row_bytes + i * kBytes, lanes);
        simd::unroll<kRows>([&](auto r) {
          sum[r][c][0] = V::fma(V::load_n(x + r * p.x_stride + i, lanes), column, sum[r][c][0]);
        });
      });
    }
    simd::unroll<kRows>([&](auto r) {
      float* y = p.y + (row + r) * p.y_stride + n;
      simd::unroll<kColumns>([&](auto c) {
        const float total = V::sum(V::add(sum[r][c][0], sum[r][c][1]));
        y[c] = p.accumulate ? y[c] + total : total;
      });
    });
  }
};

}  // namespace attune::kernels::gemv
