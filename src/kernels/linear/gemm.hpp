// A register-tiled matrix product for operands that sit in a core's caches, and the forms its
// operands take (layer kernels). Template on the unit that multiplies (kernels/dense/unit.hpp), so
// each instruction set has its own symbols.
#pragma once

#include <cstdint>

#include "kernels/dense/unit.hpp"

namespace attune::kernels::linear {

/// Operand A with free strides: the kPair numbers of row i and step k, that is of depths k * kPair
/// and on, begin at data[i * row + k * step].
template <class Unit>
struct LeftOperand {
  const typename Unit::Number* data = nullptr;
  std::int64_t row = 0;
  std::int64_t step = Unit::kPair;
};

/// What of C stays: row i times factor[i * step]. Nothing without factors.
struct Kept {
  const float* factor = nullptr;
  int step = 0;
};

template <class Unit, int kRows, int kVectors>
inline void product_tile(const LeftOperand<Unit>& a, const typename Unit::Number* b,
                         std::int64_t b_row, float* c, std::int64_t c_row, int steps,
                         const Kept& kept) {
  using S = typename Unit::V;
  using Vec = typename S::F;
  Vec sum[kRows][kVectors];
  // Plain loops: a closure that g++ does not inline would keep the sums in memory.
  for (int i = 0; i < kRows; ++i) {
    const Vec factor = S::set(kept.factor != nullptr ? kept.factor[i * kept.step] : 0.0f);
    for (int v = 0; v < kVectors; ++v)
      sum[i][v] = kept.factor != nullptr ? S::mul(S::load(c + i * c_row + v * S::kLanes), factor)
                                         : S::zero();
  }
  for (int k = 0; k < steps; ++k) {
    typename Unit::Operand right[kVectors];
    for (int v = 0; v < kVectors; ++v)
      right[v] = Unit::load(b + (k * b_row + v * S::kLanes) * Unit::kPair);
    for (int i = 0; i < kRows; ++i) {
      const typename Unit::Operand left = Unit::broadcast(a.data + i * a.row + k * a.step);
      for (int v = 0; v < kVectors; ++v) sum[i][v] = Unit::multiply_add(left, right[v], sum[i][v]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) S::store(c + i * c_row + v * S::kLanes, sum[i][v]);
}

/// C = A B, plus what is kept of C. B is [depth / kPair, b_row, kPair]; columns is a multiple of
/// the lanes, and a depth that is none of kPair is followed by zeros in A or B.
template <class Unit>
inline void product(const LeftOperand<Unit>& a, const typename Unit::Number* b, std::int64_t b_row,
                    float* c, std::int64_t c_row, int rows, int columns, int depth,
                    const Kept& kept = {}) {
  constexpr int kLanes = Unit::V::kLanes;
  constexpr int kRows = kLanes == 16 ? 8 : 4;
  constexpr int kVectors = 2;
  const int steps = (depth + Unit::kPair - 1) / Unit::kPair;
  for (int i = 0; i < rows;) {
    const bool full_rows = rows - i >= kRows;
    const LeftOperand<Unit> part{a.data + i * a.row, a.row, a.step};
    const Kept stays{kept.factor != nullptr ? kept.factor + i * kept.step : nullptr, kept.step};
    float* out = c + i * c_row;
    for (int j = 0; j < columns;) {
      const bool pair = columns - j >= kVectors * kLanes;
      const typename Unit::Number* right = b + j * Unit::kPair;
      if (full_rows && pair) {
        product_tile<Unit, kRows, kVectors>(part, right, b_row, out + j, c_row, steps, stays);
      } else if (full_rows) {
        product_tile<Unit, kRows, 1>(part, right, b_row, out + j, c_row, steps, stays);
      } else if (pair) {
        product_tile<Unit, 1, kVectors>(part, right, b_row, out + j, c_row, steps, stays);
      } else {
        product_tile<Unit, 1, 1>(part, right, b_row, out + j, c_row, steps, stays);
      }
      j += pair ? kVectors * kLanes : kLanes;
    }
    i += full_rows ? kRows : 1;
  }
}

/// fp32 rows, padded to kPadding, as operands. Where the unit multiplies fp32, rows and pairs are
/// what is there already, and `to` may be null.
template <class Unit>
struct Operands {
  using S = typename Unit::V;
  using Vec = typename S::F;
  using Number = typename Unit::Number;
  static constexpr int kPair = Unit::kPair;
  static constexpr bool kAsTheyAre = kPair == 1;

  /// [rows, width]: left operands, depth along the row.
  static const Number* rows(const float* from, int count, int width, Number* to) {
    if constexpr (kAsTheyAre) {
      return from;
    } else {
      const int size = count * width;  // whole pairs of vectors: count is a multiple of kBlock
      for (int at = 0; at < size; at += kPair * S::kLanes) {
        Vec x[kPair];
        for (int i = 0; i < kPair; ++i) x[i] = S::load(from + at + i * S::kLanes);
        Unit::store(to + at, Unit::round(x));
      }
      return to;
    }
  }

  /// [count / kPair, width, kPair]: right operands of that depth, and transposed left ones.
  static const Number* pairs(const float* from, int count, int width, Number* to) {
    if constexpr (kAsTheyAre) {
      return from;
    } else {
      for (int r = 0; r < count; r += kPair)
        for (int c = 0; c < width; c += S::kLanes) {
          Vec x[kPair];
          for (int i = 0; i < kPair; ++i) x[i] = S::load(from + (r + i) * width + c);
          Unit::store(to + r * width + c * kPair, Unit::round_lanes(x));
        }
      return to;
    }
  }

  /// [width / kPair, to_row, kPair], columns [0, count) of it: the rows transposed, each of their
  /// numbers times its column's factor.
  static void transposed(const float* from, const float* factor, int count, int width, Number* to,
                         int to_row) {
    constexpr int kLanes = S::kLanes;
    for (int c = 0; c < width; c += kPair * kLanes) {
      Vec times[kPair];
      for (int i = 0; i < kPair; ++i)
        times[i] = c + i * kLanes < width ? S::load(factor + c + i * kLanes) : S::zero();
      for (int r = 0; r < count; r += kLanes) {
        typename Unit::Operand block[kLanes];
        for (int b = 0; b < kLanes; ++b) {
          Vec x[kPair];
          for (int i = 0; i < kPair; ++i)
            x[i] = c + i * kLanes < width
                       ? S::mul(S::load(from + (r + b) * width + c + i * kLanes), times[i])
                       : S::zero();
          block[b] = Unit::round(x);
        }
        Unit::transpose(block);
        for (int b = 0; b < kLanes && c + b * kPair < width; ++b)
          Unit::store(to + ((c / kPair + b) * static_cast<std::int64_t>(to_row) + r) * kPair,
                      block[b]);
      }
    }
  }
};

}  // namespace attune::kernels::linear
