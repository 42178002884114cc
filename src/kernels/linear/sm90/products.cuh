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

/// Products of a warp's 16 rows with all tokens, as wgmma leaves them: four for every 8 columns.
using RowProducts = float[kChunk / 2];

}  // namespace attune::kernels::linear::sm90
