// The bulk copy engine on plain runs of bytes (PTX ISA 9.7.9.25.4): one thread asks, an mbarrier
// counts the bytes. Addresses and sizes are multiples of 16.
#pragma once

#include "kernels/ptx/tma.cuh"

namespace attune::kernels::ptx {

__device__ __forceinline__ void bulk_load(void* to, const void* from, std::uint32_t bytes,
                                          Mbarrier& done,
                                          CacheHint hint = CacheHint::evict_normal) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&done)), "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// The other way. The thread that asks commits, and waits until the bytes have been read before
/// anybody overwrites them; ordinary writes of them need fence_proxy_async() first.
__device__ __forceinline__ void bulk_store(void* to, const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

/// Between this thread's ordinary accesses to memory and the copy engine's: after writes that are
/// about to be released to a block that copies them, and after acquiring them.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace attune::kernels::ptx
