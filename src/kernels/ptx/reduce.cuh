// What all lanes of a warp know together (sm_80 and newer).
#pragma once

namespace attune::kernels::ptx {

/// The largest of the lanes' numbers, in every lane.
__device__ __forceinline__ unsigned warp_max(unsigned x) {
  return __reduce_max_sync(0xffffffffu, x);
}

}  // namespace attune::kernels::ptx
