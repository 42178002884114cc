// Looking at counters that others release (atomic.cuh) without waiting for them.
#pragma once

#include <cstdint>

namespace attune::kernels::ptx {

/// What it holds, without an order: several looks are under way at once.
__device__ __forceinline__ std::int32_t look_at(const std::int32_t* counter) {
  std::int32_t now;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  return now;
}

/// After looks: acquires what the arrivals that they saw released.
__device__ __forceinline__ void acquire_what_was_seen() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

}  // namespace attune::kernels::ptx
