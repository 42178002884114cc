// The products of a chunk's rows with one another, as four warps hold them (layer
// kernels).
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/unit_lower.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::linear::sm90 {

inline constexpr int kScoreThreads = 32 * kBlocks;  ///< a warp 16 rows

/// Of the warpgroup that has a chunk; a block may have several.
__device__ __forceinline__ int score_thread() {
  return static_cast<int>(threadIdx.x) % kScoreThreads;
}
__device__ __forceinline__ void score_barrier() {
  ptx::named_barrier_sync(1 + static_cast<int>(threadIdx.x) / kScoreThreads, kScoreThreads);
}

/// Products of a warp's rows with the tokens up to them, 8 columns each.
struct Products {
  float kk[kChunk / 8][4];
  float qk[kChunk / 8][4];
};

/// Of 16 tokens: b is their block of columns.
__device__ __forceinline__ void add_products(Products& x, int nb, const std::uint32_t (&q)[4],
                                             const std::uint32_t (&k)[4],
                                             const std::uint32_t (&b)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    multiply(x.kk[2 * nb + half], k, b[2 * half], b[2 * half + 1]);
    multiply(x.qk[2 * nb + half], q, b[2 * half], b[2 * half + 1]);
  }
}

}  // namespace attune::kernels::linear::sm90
