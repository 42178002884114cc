// The bulk tensor copy engine (PTX ISA 9.7.9.25): one thread asks, boxes arrive, an mbarrier counts
// the bytes. Coordinates run innermost first, in elements; boxes beyond the tensor read as zero.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::ptx {

/// L2 eviction hints, as createpolicy encodes them.
enum class CacheHint : std::uint64_t {
  evict_normal = 0x1000000000000000,
  evict_first = 0x12F0000000000000,
  evict_last = 0x14F0000000000000,
};

__device__ __forceinline__ void tma_prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void tma_load(void* to, const CUtensorMap& map, Mbarrier& done,
                                         CacheHint hint, std::int32_t c0, std::int32_t c1,
                                         std::int32_t c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&done)), "r"(c0), "r"(c1), "r"(c2),
      "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

__device__ __forceinline__ void tma_load(void* to, const CUtensorMap& map, Mbarrier& done,
                                         CacheHint hint, std::int32_t c0, std::int32_t c1,
                                         std::int32_t c2, std::int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&done)), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
      "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// Asks the second-level cache for memory that is read soon; multiples of 16 bytes.
__device__ __forceinline__ void bulk_prefetch(const void* from, std::int64_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from),
               "r"(static_cast<std::uint32_t>(bytes))
               : "memory");
}

/// A box from shared memory; what lies beyond the tensor is not written. The thread that asks also
/// commits, and waits until the bytes have been read before anybody overwrites them.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, const void* from, std::int32_t c0,
                                          std::int32_t c1, std::int32_t c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// All of this thread's bulk stores but those of its newest `Pending` commits have read their
/// shared memory.
template <int Pending = 0>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

/// Makes this thread's ordinary shared-memory writes visible to wgmma and the copy engine; a
/// barrier among the writers must follow.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace attune::kernels::ptx
