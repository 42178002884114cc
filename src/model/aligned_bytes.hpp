// Memory for weights and activations, aligned to cache lines (layer model).
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/math.hpp"

namespace attune::model {

struct FreeAligned {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeAligned>;

/// nullptr where there is no memory.
[[nodiscard]] inline AlignedBytes allocate_aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  return AlignedBytes(static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, base::round_up(bytes == 0 ? 1 : bytes, kAlignment))));
}

}  // namespace attune::model
