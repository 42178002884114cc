// Rows that become the columns of a tile of B (layer kernels).
#pragma once

#include <cstdint>

#include "kernels/simd/unroll.hpp"
#include "kernels/tile/cells.hpp"

namespace attune::kernels::tile {

/// `count` rows of cells → [cell][count]; writes up to an operand beyond the last.
template <class Unit>
void pack_columns(const char* rows, std::int64_t row_bytes, int count, typename Unit::Number* out) {
  using V = typename Unit::V;
  using Operand = typename Unit::Operand;
  constexpr int kLanes = V::kLanes;
  constexpr std::int64_t kOperandBytes = kLanes * kCellBytes;
  constexpr int kCellNumbers = kCellBytes / static_cast<int>(sizeof(typename Unit::Number));
  for (std::int64_t at = 0; at < row_bytes; at += kOperandBytes) {
    for (int column = 0; column < count; column += kLanes) {
      Operand m[kLanes];
      simd::unroll<kLanes>([&](auto i) {
        m[i] =
            column + i < count ? V::load_bytes(rows + (column + i) * row_bytes + at) : Unit::zero();
      });
      Unit::transpose(m);
      simd::unroll<kLanes>([&](auto i) {
        const std::int64_t cell = (at / kCellBytes + i) * count + column;
        Unit::store(out + cell * kCellNumbers, m[i]);
      });
    }
  }
}

}  // namespace attune::kernels::tile
