// Shapes and fillings that both halves of a stage use (layer conformance).
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/tensor.hpp>

#include "conformance/case.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::conformance {

inline constexpr unsigned char kNan = 0xff;  ///< in every float format
inline constexpr std::int64_t kGap = 32;     ///< elements between rows of strided tensors

[[nodiscard]] inline bool apart(const Case& one) { return tensor::stores_v_apart(one.layout); }

/// [tokens, heads, dim] with a gap behind every token where the case is strided.
[[nodiscard]] inline TensorView token_view(DType dtype, std::int64_t tokens, int heads, int dim,
                                           bool strided) {
  TensorView view = TensorView::dense(nullptr, dtype, {tokens, heads, dim});
  if (strided) view.stride[0] += kGap;
  return view;
}

[[nodiscard]] inline std::size_t token_bytes(const TensorView& view) {
  return static_cast<std::size_t>(view.shape[0] * view.stride[0]) * size_of(view.dtype);
}

}  // namespace attune::conformance
