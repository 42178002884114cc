// wgmma's operands in tiles of 16 columns, one step of a product each.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::ptx {

/// Descriptor of a K-major tile of rows of 16 16-bit elements (32 bytes), one after another with
/// the 32-byte swizzle: a row's two 16-byte pieces change places every four rows. The tile's start
/// must be a multiple of 256 bytes.
__device__ __forceinline__ std::uint64_t wgmma_descriptor_narrow(const void* tile) {
  constexpr std::uint64_t kSwizzle32 = std::uint64_t{3} << 62;
  constexpr std::uint64_t kStride = std::uint64_t{256 >> 4} << 32;
  constexpr std::uint64_t kLeading = std::uint64_t{1} << 16;
  return kSwizzle32 | kStride | kLeading | ((shared_address(tile) & 0x3FFFF) >> 4);
}

}  // namespace attune::kernels::ptx
