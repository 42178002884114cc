// Activations as the CPU's operations walk them: row by row (layer model).
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune::model {

/// A view seen as rows of numbers: [tokens, width], or [tokens, heads, width].
struct Rows {
  std::byte* data = nullptr;
  std::int64_t tokens = 0;
  std::int64_t heads = 1;
  std::int64_t width = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t element = 4;

  [[nodiscard]] std::int64_t count() const { return tokens * heads; }
  [[nodiscard]] std::byte* at(std::int64_t row) const {
    const std::int64_t offset = row / heads * token_stride + row % heads * head_stride;
    return data + offset * element;
  }
  [[nodiscard]] float* f32(std::int64_t row) const { return reinterpret_cast<float*>(at(row)); }
};

[[nodiscard]] inline Rows any_rows(const TensorView& v) {
  require(v.rank == 2 || v.rank == 3, "activations are [tokens, width] or [tokens, heads, dim]");
  require(v.stride[static_cast<std::size_t>(v.rank - 1)] == 1, "the last stride is 1");
  Rows rows{.data = static_cast<std::byte*>(v.data),
            .tokens = v.shape[0],
            .heads = v.rank == 3 ? v.shape[1] : 1,
            .width = v.shape[static_cast<std::size_t>(v.rank - 1)],
            .token_stride = v.stride[0],
            .head_stride = v.rank == 3 ? v.stride[1] : 0,
            .element = static_cast<std::int64_t>(size_of(v.dtype))};
  return rows;
}

[[nodiscard]] inline Rows f32_rows(const TensorView& v) {
  require(v.dtype == DType::f32, "activations on the CPU are fp32");
  return any_rows(v);
}

inline void require_same(const Rows& a, const Rows& b) {
  require(a.count() == b.count() && a.width == b.width, "in and out have one shape");
}

[[nodiscard]] inline const std::int32_t* indices(const TensorView& v) {
  require(v.dtype == DType::i32 && v.rank >= 1, "indices are i32");
  return v.as<std::int32_t>();
}

}  // namespace attune::model
