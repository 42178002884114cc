// kernels/ptx/wgmma_narrow.cuh in plain C++.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::ptx {

inline std::uint64_t wgmma_descriptor_narrow(const void* tile) {
  constexpr std::uint64_t kSwizzle32 = std::uint64_t{3} << 62;
  constexpr std::uint64_t kStride = std::uint64_t{256 >> 4} << 32;
  constexpr std::uint64_t kLeading = std::uint64_t{1} << 16;
  return kSwizzle32 | kStride | kLeading | ((shared_address(tile) & 0x3FFFF) >> 4);
}

}  // namespace attune::kernels::ptx
