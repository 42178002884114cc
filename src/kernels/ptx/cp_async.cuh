// cp.async: 16-byte copies from global to shared memory by ordinary threads, for gathers that the
// tensor copy engine cannot address.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::ptx {

/// Past L1. Where `valid` is false nothing is read and the 16 bytes become zero.
__device__ __forceinline__ void cp_async_16(void* to, const void* from, bool valid = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `Pending` of this thread's newest groups are under way.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Arrives on the barrier once all of this thread's earlier copies have landed. The barrier's count
/// must include the arrival (noinc).
__device__ __forceinline__ void cp_async_mbarrier_arrive(Mbarrier& b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&b))
               : "memory");
}

}  // namespace attune::kernels::ptx
