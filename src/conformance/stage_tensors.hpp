// Shapes and fillings that both halves of a stage use (layer conformance).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <attune/tensor.hpp>

#include "conformance/case.hpp"
#include "conformance/stage.hpp"
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

/// A view of rows with a gap behind each where the case is strided.
[[nodiscard]] inline TensorView rows_view(DType dtype, std::int64_t rows, std::int64_t columns,
                                          bool strided) {
  TensorView view = TensorView::dense(nullptr, dtype, {rows, columns});
  if (strided) view.stride[0] += kGap;
  return view;
}

/// `image` becomes what `view` shows.
[[nodiscard]] inline Status place_rows(DeviceMemory& memory, TensorView& view, GuardedMemory& to,
                                       const std::vector<char>& image) {
  auto made = GuardedMemory::make(memory, image.size(), kNan);
  if (!made.ok()) return made.status();
  to = std::move(*made);
  view.data = to.data();
  return to.upload(image);
}

/// Of each part the first rows of its request, as many as `indptr` says, one behind the other.
[[nodiscard]] inline std::vector<char> rows_of_parts(const Step& step,
                                                     const std::vector<char>& rows,
                                                     const std::vector<std::int64_t>& first,
                                                     std::size_t row_bytes,
                                                     const std::vector<std::int32_t>& indptr) {
  std::vector<char> image;
  for (std::size_t n = 0; n < step.parts.size(); ++n) {
    const auto begin =
        static_cast<std::size_t>(first[static_cast<std::size_t>(step.parts[n].request)]);
    const auto count = static_cast<std::size_t>(indptr[n + 1] - indptr[n]);
    image.insert(image.end(), rows.begin() + static_cast<std::ptrdiff_t>(begin * row_bytes),
                 rows.begin() + static_cast<std::ptrdiff_t>((begin + count) * row_bytes));
  }
  return image;
}

}  // namespace attune::conformance
