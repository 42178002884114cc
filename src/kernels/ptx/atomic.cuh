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

}  // namespace attune::kernels::ptx
