// wgmma: a warpgroup's asynchronous matrix product D[64, N] (+)= A[64, 16] B[16, N] (PTX ISA
// 9.7.15). A comes from shared memory or registers, B from shared memory, D stays in registers.
//
// Thread t of the warpgroup holds in d[4 c + 2 h + e] the element (row, column) =
//   (16 (t / 32) + (t % 32) / 4 + 8 h,  8 c + 2 (t % 4) + e),   h, e in {0, 1}, c in 0 … N / 8 - 1.
// A in registers is the same layout packed in pairs: a[2 c + h] holds columns 2 (t % 4) + {0, 1} of
// 8-column block c in {0, 1}; so the accumulators of one product, packed, are the A of the next.
//
// Order: wgmma_fence() after ordinary writes to registers that the next products read or
// accumulate into; issue; wgmma_commit(); wgmma_wait<n>() until at most n commits are under way.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/wgmma_register_shapes.cuh"
#include "kernels/ptx/wgmma_shapes.cuh"

namespace attune::kernels::ptx {

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Keeps the compiler from moving reads or writes of accumulators across a wait or a fence.
template <int N>
__device__ __forceinline__ void wgmma_pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
__device__ __forceinline__ void wgmma_pin(std::uint32_t (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

/// Descriptor of a tile of 16-bit elements that the copy engine wrote with the 128-byte swizzle:
/// rows of 64 elements (128 bytes), 8 rows a 1024-byte atom, atoms one after another. The tile's
/// start must be a multiple of 1024 bytes. Steps add (bytes >> 4) to the descriptor.
///   K-major (rows are M or N, the 64 elements run along K): 16 more of K = 32 bytes; the stride
///     between 8-row groups is 1024 bytes.
///   MN-major (rows are K, the 64 elements run along M or N): 16 more of K = 2048 bytes; the next
///     64 of M or N are `leading` bytes away.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(const void* tile,
                                                          std::uint32_t leading_bytes = 16) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kStride = std::uint64_t{1024 >> 4} << 32;
  const std::uint64_t start = (shared_address(tile) & 0x3FFFF) >> 4;
  const std::uint64_t leading = static_cast<std::uint64_t>((leading_bytes & 0x3FFFF) >> 4) << 16;
  return kSwizzle128 | kStride | leading | start;
}

}  // namespace attune::kernels::ptx
