// Atomics with an order of their own.
#pragma once

#include <cstdint>

namespace attune::kernels::ptx {

/// Adds 1 and returns what was there: releases what this thread (and, behind a barrier, its block)
/// wrote before, and acquires what earlier arrivals released.
__device__ __forceinline__ std::int32_t arrive_at(std::int32_t* counter) {
  std::int32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

/// Waits until the counter holds `value`, and acquires what its arrivals released. Whoever is
/// waited for must be running already.
__device__ __forceinline__ void wait_for(const std::int32_t* counter, std::int32_t value) {
  std::int32_t now;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  while (now != value);
}

}  // namespace attune::kernels::ptx
