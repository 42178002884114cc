// What kernels with sixteen-byte accesses ask of tensors.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "base/join.hpp"

namespace attune::backends::shared {

/// Rows must start at multiples of sixteen bytes.
[[nodiscard]] inline Status check_alignment(const char* what, const TensorView& view) {
  const std::size_t size = size_of(view.dtype);
  bool good = reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
  for (int i = 0; i + 1 < view.rank; ++i) {
    const auto axis = static_cast<std::size_t>(i);
    if (view.shape[axis] > 1)
      good = good && static_cast<std::size_t>(view.stride[axis]) * size % 16 == 0;
  }
  if (good) return {};
  return invalid_argument(base::join(what,
                                     " must start at a multiple of 16 bytes, and so must each "
                                     "of its rows"));
}

}  // namespace attune::backends::shared
