// A ring of stages that mbarriers guard: where a role stands in it, and the arrival of a whole warp.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::ptx {

/// Where a consumer begins; a producer begins with parity 1 (mbarrier.cuh).
template <int Stages>
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage < Stages) return;
    stage = 0;
    parity ^= 1;
  }
  __device__ __forceinline__ Ring next() const {
    Ring after = *this;
    after.advance();
    return after;
  }
};

/// One arrival a warp, when all of its lanes are here.
__device__ __forceinline__ void mbarrier_arrive_warp(Mbarrier& b) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(b);
}

}  // namespace attune::kernels::ptx
