// mbarrier: the shared-memory barrier that counts arrivals and bytes (PTX ISA 9.7.13.15).
//
// A barrier has phases; a waiter names the parity of the phase it waits for. A fresh barrier is in
// phase 0, so wait(b, 0) waits for the first completion and wait(b, 1) returns at once: a ring's
// producer starts with parity 1 and its consumer with parity 0.
#pragma once

#include <cstdint>

namespace attune::kernels::ptx {

/// The 32-bit address that shared-memory instructions take.
__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

using Mbarrier = std::uint64_t;

__device__ __forceinline__ void mbarrier_init(Mbarrier& b, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&b)), "r"(arrivals)
               : "memory");
}

/// After the inits, before any other thread (of the cluster) or the copy engine uses the barriers;
/// follow it with __syncthreads() or a cluster barrier.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier& b) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(&b))
               : "memory");
}

/// Arrives and announces `bytes` that the copy engine will deliver in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect(Mbarrier& b, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(&b)),
               "r"(bytes)
               : "memory");
}

/// Whether the phase is complete; does not wait.
__device__ __forceinline__ bool mbarrier_test(Mbarrier& b, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(shared_address(&b)), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void mbarrier_wait(Mbarrier& b, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(&b)), "r"(parity)
        : "memory");
  }
}

}  // namespace attune::kernels::ptx
