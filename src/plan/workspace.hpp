// WorkspaceCutter: one layout routine, run twice (layer plan). Over nothing it counts bytes, over
// memory it hands out pointers, and since both runs are the same lines they cannot disagree.
//
//   Parts lay_out(WorkspaceCutter& cut, const Sizes& n) {
//     return {.o = cut.take<float>(n.rows * n.dims), .lse = cut.take<float>(n.rows)};
//   }
//   WorkspaceCutter count;          lay_out(count, n);  bytes = count.bytes();
//   WorkspaceCutter cut(memory);    parts = lay_out(cut, n);
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/math.hpp"

namespace attune::plan {

class WorkspaceCutter {
 public:
  /// What callers of plan() promise (include/attune/backend.hpp).
  static constexpr std::size_t kAlignment = 256;

  WorkspaceCutter() = default;
  explicit WorkspaceCutter(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  /// Room for n values, at a cache line of its own; nullptr while counting.
  template <class T>
  T* take(std::int64_t n) {
    constexpr std::size_t kLine = 64;
    const std::size_t at = base::round_up(bytes_, kLine);
    bytes_ = at + static_cast<std::size_t>(n) * sizeof(T);
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }

  [[nodiscard]] std::size_t bytes() const { return base::round_up(bytes_, kAlignment); }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace attune::plan
