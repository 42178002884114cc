// Thread block clusters (compute capability 9.0): blocks that meet, and read and write each other's
// shared memory. A block's memory is there until it ends: the last access is followed by a meeting.
#pragma once

#include <cstdint>

namespace attune::kernels::ptx {

/// This block's number in its cluster, and how many there are; a launch without clusters has
/// clusters of one.
__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ __forceinline__ int cluster_size() {
  std::uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int>(size);
}

/// All threads of the cluster meet; what each wrote before is seen by all.
__device__ __forceinline__ void cluster_sync() {
  if (cluster_size() == 1) return __syncthreads();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

/// What block `rank` has where this block has `mine`; dynamic shared memory.
template <class T>
__device__ __forceinline__ T* shared_of(int rank, T* mine) {
  std::uint64_t theirs;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
  return reinterpret_cast<T*>(theirs);
}

}  // namespace attune::kernels::ptx
