// Rows that become the columns of a tile of B (layer kernels).
#pragma once

#include <cstdint>

#include "kernels/simd/unroll.hpp"
#include "kernels/tile/cells.hpp"

namespace attune::kernels::tile {

/// Rows of cells, row_at(i) → [cell][count]; zeros for all but `valid` rows. Writes up to an operand
/// beyond the last.
template <class Unit, class RowAt>
void pack_columns(RowAt&& row_at, std::int64_t row_bytes, int count, std::int64_t valid,
                  typename Unit::Number* out) {
  using V = typename Unit::V;
  using Operand = typename Unit::Operand;
  constexpr int kLanes = V::kLanes;
  constexpr std::int64_t kOperandBytes = kLanes * kCellBytes;
  constexpr int kCellNumbers = kCellBytes / static_cast<int>(sizeof(typename Unit::Number));
  for (std::int64_t at = 0; at < row_bytes; at += kOperandBytes) {
    for (int column = 0; column < count; column += kLanes) {
      Operand m[kLanes];
      simd::unroll<kLanes>([&](auto i) {
        m[i] = column + i < valid ? V::load_bytes(row_at(column + i) + at) : Unit::zero();
      });
      Unit::transpose(m);
      simd::unroll<kLanes>([&](auto i) {
        const std::int64_t cell = (at / kCellBytes + i) * count + column;
        Unit::store(out + cell * kCellNumbers, m[i]);
      });
    }
  }
}

/// The same of rows that follow each other.
template <class Unit>
void pack_columns(const char* rows, std::int64_t row_bytes, int count, typename Unit::Number* out) {
  pack_columns<Unit>([&](int i) { return rows + i * row_bytes; }, row_bytes, count, count, out);
}

}  // namespace attune::kernels::tile
