// What the gemv kernels are given (layer kernels): y = x · Wᵀ for a few rows of x, where reading
// the weights is all the time it takes.
#pragma once

#include <cstdint>

namespace attune::kernels::gemv {

/// More rows than this are better served by a blocked product.
inline constexpr std::int64_t kMaxRows = 8;

struct Params {
  const void* w = nullptr;       ///< [num_columns, k], dense rows
  std::int64_t num_columns = 0;  ///< of y
  std::int64_t k = 0;
  const float* x = nullptr;  ///< [num_rows, k]
  std::int64_t x_stride = 0;
  std::int64_t num_rows = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  bool accumulate = false;  ///< y += instead of y =
};

}  // namespace attune::kernels::gemv
