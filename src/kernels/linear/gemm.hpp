// A register-tiled matrix product for operands that sit in a core's caches (layer kernels).
// Template on the SIMD type, so each instruction set has its own symbols.
#pragma once

#include <cstdint>

namespace attune::kernels::linear {

/// Row-major operand A with free strides: element (i, k) at data[i * row + k * column].
struct LeftOperand {
  const float* data = nullptr;
  std::int64_t row = 0;
  std::int64_t column = 1;
};

/// What of C stays: row i times factor[i * step]. Nothing without factors.
struct Kept {
  const float* factor = nullptr;
  int step = 0;
};

template <class S, int kRows, int kVectors>
inline void product_tile(const LeftOperand& a, const float* b, std::int64_t b_row, float* c,
                         std::int64_t c_row, int depth, const Kept& kept) {
  using Vec = typename S::F;
  Vec sum[kRows][kVectors];
  // Plain loops: a closure that g++ does not inline would keep the sums in memory.
  for (int i = 0; i < kRows; ++i) {
    const Vec factor = S::set(kept.factor != nullptr ? kept.factor[i * kept.step] : 0.0f);
    for (int v = 0; v < kVectors; ++v)
      sum[i][v] = kept.factor != nullptr ? S::mul(S::load(c + i * c_row + v * S::kLanes), factor)
                                         : S::zero();
  }
  for (int k = 0; k < depth; ++k) {
    Vec right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = S::load(b + k * b_row + v * S::kLanes);
    for (int i = 0; i < kRows; ++i) {
      const Vec left = S::set(a.data[i * a.row + k * a.column]);
      for (int v = 0; v < kVectors; ++v) sum[i][v] = S::fma(left, right[v], sum[i][v]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) S::store(c + i * c_row + v * S::kLanes, sum[i][v]);
}

/// C = A B, plus what is kept of C; columns is a multiple of S::kLanes.
template <class S>
inline void product(const LeftOperand& a, const float* b, std::int64_t b_row, float* c,
                    std::int64_t c_row, int rows, int columns, int depth, const Kept& kept = {}) {
  constexpr int kRows = S::kLanes == 16 ? 8 : 4;
  constexpr int kVectors = 2;
  for (int i = 0; i < rows;) {
    const bool full_rows = rows - i >= kRows;
    const LeftOperand part{a.data + i * a.row, a.row, a.column};
    const Kept stays{kept.factor != nullptr ? kept.factor + i * kept.step : nullptr, kept.step};
    float* out = c + i * c_row;
    for (int j = 0; j < columns;) {
      const bool pair = columns - j >= kVectors * S::kLanes;
      if (full_rows && pair) {
        product_tile<S, kRows, kVectors>(part, b + j, b_row, out + j, c_row, depth, stays);
      } else if (full_rows) {
        product_tile<S, kRows, 1>(part, b + j, b_row, out + j, c_row, depth, stays);
      } else if (pair) {
        product_tile<S, 1, kVectors>(part, b + j, b_row, out + j, c_row, depth, stays);
      } else {
        product_tile<S, 1, 1>(part, b + j, b_row, out + j, c_row, depth, stays);
      }
      j += pair ? kVectors * S::kLanes : S::kLanes;
    }
    i += full_rows ? kRows : 1;
  }
}

}  // namespace attune::kernels::linear
