// Checks of one tensor against what a call needs, with a text for each (layer tensor).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune::tensor {

/// A dimension that may be any size; the caller reads it afterwards.
inline constexpr std::int64_t kAnySize = -1;

/// What a tensor must look like. Memory may be null only where there is no element.
struct Wanted {
  std::string_view name{};
  DType dtype = DType::f32;
  std::span<const std::int64_t> shape{};
  bool written = false;  ///< then no two elements may share an address
};

/// Rank, dtype, shape, alignment, an innermost stride of 1, non-negative strides and an extent that
/// 64-bit byte offsets can address.
[[nodiscard]] Status match(const TensorView& view, const Wanted& wanted);

/// "[3, 8, 128]", with * for kAnySize.
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace attune::tensor
