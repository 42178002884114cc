// Tiles and what their 32-bit cells hold (layer kernels).
#pragma once

#include <cstdint>

namespace attune::kernels::tile {

/// Pairs of bf16, summed in fp32, or fours of signed bytes, summed in 32 bits.
enum class Cells : std::uint8_t { bf16, int8 };

inline constexpr int kTiles = 8;
inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;  ///< of a row
inline constexpr int kCellBytes = 4;

struct Shape {
  int rows = kTileRows;
  int bytes = kTileBytes;  ///< of a row
};

/// Products want as many rows of B as A has cells in a row, and sums of A's rows and B's columns.
struct Shapes {
  Shape tile[kTiles];
};

}  // namespace attune::kernels::tile
