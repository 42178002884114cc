// What the quant_matmul kernels are given (layer kernels): y = x · Wᵀ with x in 8-bit integers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attune::kernels::quant_matmul {

/// Activations share a scale over 32 numbers, whatever the weights do.
inline constexpr int kActivationGroup = 32;

/// Rows of activations, quantised: x = scale * q. Sums are over groups of 16 numbers.
struct Activations {
  std::int8_t* q = nullptr;      ///< [rows, columns]
  float* scale = nullptr;        ///< [rows, columns / 32]
  std::int32_t* sums = nullptr;  ///< [rows, columns / 16], of q
};

/// Some tiles of one weight times some rows.
struct Params {
  const std::byte* tiles = nullptr;  ///< the first of num_tiles consecutive ones (layout.hpp)
  std::int64_t tile_stride = 0;      ///< bytes
  std::int64_t num_tiles = 0;
  std::int64_t columns = 0;
  std::int64_t num_rows = 0;
  const std::int8_t* q = nullptr;       ///< [num_rows, columns]
  const float* scale = nullptr;         ///< [num_rows, columns / 32]
  const std::int32_t* start = nullptr;  ///< [num_rows, columns / group], from KernelSet::fill_sums:
                                        ///< layouts without minima
  const float* sums = nullptr;          ///< likewise: layouts with minima
  float* y = nullptr;                   ///< row 0, the first tile's first column
  std::int64_t y_stride = 0;
  std::int64_t y_columns = 0;  ///< columns of y that exist from there on; the last tile may be part
  bool accumulate = false;     ///< y += instead of y =
};

}  // namespace attune::kernels::quant_matmul
