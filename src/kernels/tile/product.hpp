// Rows times packed columns on tiles (layer kernels).
#pragma once

#include <cstdint>

namespace attune::kernels::tile {

/// c[rows][columns] (+)= a[rows][2 * pairs] · b[pairs][columns][2]. Reads and writes whole tiles:
/// rows up to the next multiple of 16, columns a multiple of 32, pairs a multiple of 16. Strides
/// count elements.
template <class Tiles>
struct Product {
  static constexpr int kRows = 16;
  static constexpr int kPairs = 16;

  static void run(Tiles& tiles, int rows, const std::uint16_t* a, std::int64_t a_stride,
                  const std::uint16_t* b, std::int64_t b_stride, int pairs, std::int64_t columns,
                  float* c, std::int64_t c_stride, bool add) {
    for (int row = 0; row < rows; row += 2 * kRows) {
      for (std::int64_t col = 0; col < columns; col += 2 * kRows) {
        const std::uint16_t* const a_block = a + row * a_stride;
        const std::uint16_t* const b_block = b + col * 2;
        float* const c_block = c + row * c_stride + col;
        if (rows - row > kRows)
          block<2>(tiles, a_block, a_stride, b_block, b_stride, pairs, c_block, c_stride, add);
        else
          block<1>(tiles, a_block, a_stride, b_block, b_stride, pairs, c_block, c_stride, add);
      }
    }
  }

 private:
  /// R tiles of rows by two of columns: sums in tiles 0 to 3, rows in 4 and 5, columns in 6 and 7.
  /// With R = 2 four loads feed four products, and the multiplier never waits.
  template <int R>
  static void block(Tiles& tiles, const std::uint16_t* a, std::int64_t a_stride,
                    const std::uint16_t* b, std::int64_t b_stride, int pairs, float* c,
                    std::int64_t c_stride, bool add) {
    const std::int64_t a_bytes = a_stride * 2;
    const std::int64_t b_bytes = b_stride * 2;
    const std::int64_t c_bytes = c_stride * 4;
    float* const c_low = c + kRows * c_stride;
    if (add) {
      tiles.template load<0>(c, c_bytes);
      tiles.template load<1>(c + kRows, c_bytes);
      if constexpr (R == 2) {
        tiles.template load<2>(c_low, c_bytes);
        tiles.template load<3>(c_low + kRows, c_bytes);
      }
    } else {
      tiles.template zero<0>();
      tiles.template zero<1>();
      if constexpr (R == 2) {
        tiles.template zero<2>();
        tiles.template zero<3>();
      }
    }
    for (int k = 0; k < pairs; k += kPairs) {
      tiles.template load<6>(b + k * b_stride, b_bytes);
      tiles.template load<4>(a + k * 2, a_bytes);
      tiles.template multiply_add<0, 4, 6>();
      tiles.template load<7>(b + k * b_stride + kRows * 2, b_bytes);
      tiles.template multiply_add<1, 4, 7>();
      if constexpr (R == 2) {
        tiles.template load<5>(a + kRows * a_stride + k * 2, a_bytes);
        tiles.template multiply_add<2, 5, 6>();
        tiles.template multiply_add<3, 5, 7>();
      }
    }
    tiles.template store<0>(c, c_bytes);
    tiles.template store<1>(c + kRows, c_bytes);
    if constexpr (R == 2) {
      tiles.template store<2>(c_low, c_bytes);
      tiles.template store<3>(c_low + kRows, c_bytes);
    }
  }
};

}  // namespace attune::kernels::tile
