// Memory for one step's activations: a stack, laid out by the same lines that use it (layer model).
//
//   StepMemory counting;                       // a pass over the layout without memory
//   part.lay_out(counting, max_tokens);
//   StepMemory memory(buffer.data(), counting.peak_bytes());
//   { auto frame = memory.frame();             // everything taken inside is given back here
//     TensorView h = memory.take(DType::f32, {n, width}); … }
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "base/math.hpp"

namespace attune::model {

class StepMemory {
 public:
  /// Counts only: its views must not be read or written.
  StepMemory() = default;
  StepMemory(void* data, std::size_t bytes)
      : data_(static_cast<std::byte*>(data)), capacity_(bytes) {}

  /// A dense view, aligned to 256 bytes.
  [[nodiscard]] TensorView take(DType dtype, std::initializer_list<std::int64_t> dims) {
    TensorView view = TensorView::dense(nullptr, dtype, dims);
    const auto bytes = static_cast<std::size_t>(view.num_elements()) * size_of(dtype);
    const std::size_t begin = used_;
    used_ += base::round_up<std::size_t>(bytes, 256);
    if (used_ > peak_) peak_ = used_;
    if (data_ != nullptr) {
      require(used_ <= capacity_, "a step stays within the memory that was counted for it");
      view.data = data_ + begin;
    }
    return view;
  }

  class Frame {
   public:
    explicit Frame(StepMemory& memory) : memory_(memory), used_(memory.used_) {}
    ~Frame() { memory_.used_ = used_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    StepMemory& memory_;
    std::size_t used_;
  };
  [[nodiscard]] Frame frame() { return Frame(*this); }

  [[nodiscard]] std::size_t peak_bytes() const { return peak_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

/// Columns [first, first + width) of a matrix.
[[nodiscard]] inline TensorView columns(const TensorView& matrix, std::int64_t first,
                                        std::int64_t width) {
  TensorView view = matrix;
  view.data = static_cast<std::byte*>(matrix.data) +
              static_cast<std::size_t>(first) * size_of(matrix.dtype);
  view.shape[1] = width;
  return view;
}

/// Rows [first, first + count) of any view.
[[nodiscard]] inline TensorView rows(const TensorView& view, std::int64_t first,
                                     std::int64_t count) {
  TensorView part = view;
  part.data = static_cast<std::byte*>(view.data) +
              static_cast<std::size_t>(first * view.stride[0]) * size_of(view.dtype);
  part.shape[0] = count;
  return part;
}

/// A matrix [tokens, heads * dim] seen as [tokens, heads, dim].
[[nodiscard]] inline TensorView heads(const TensorView& matrix, std::int64_t dim) {
  TensorView view = matrix;
  view.rank = 3;
  view.shape = {matrix.shape[0], matrix.shape[1] / dim, dim, 0};
  view.stride = {matrix.stride[0], dim, 1, 0};
  return view;
}

/// Dims [first, first + width) of every head of [tokens, heads, dim].
[[nodiscard]] inline TensorView head_dims(const TensorView& view, std::int64_t first,
                                          std::int64_t width) {
  TensorView part = view;
  part.data =
      static_cast<std::byte*>(view.data) + static_cast<std::size_t>(first) * size_of(view.dtype);
  part.shape[2] = width;
  return part;
}

}  // namespace attune::model
