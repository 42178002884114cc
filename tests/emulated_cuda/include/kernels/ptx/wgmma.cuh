// kernels/ptx/wgmma.cuh in plain C++; the layouts are described there.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/mma.cuh"
#include "machine.hpp"
#include "warpgroup_product.hpp"

namespace attune::kernels::ptx {

enum class Major : int { k = 0, mn = 1 };

inline void wgmma_fence() {}
inline void wgmma_commit() { emulated::commit_products(); }
template <int Pending>
void wgmma_wait() {
  emulated::wait_for_products(Pending);
}

template <int N>
void wgmma_pin(float (&)[N]) {}
template <int N>
void wgmma_pin(std::uint32_t (&)[N]) {}

inline std::uint64_t wgmma_descriptor(const void* tile, std::uint32_t leading_bytes = 16) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kStride = std::uint64_t{1024 >> 4} << 32;
  const std::uint64_t start = (shared_address(tile) & 0x3FFFF) >> 4;
  const std::uint64_t leading = static_cast<std::uint64_t>((leading_bytes & 0x3FFFF) >> 4) << 16;
  return kSwizzle128 | kStride | leading | start;
}

template <class T, int N, Major MajorA, Major MajorB>
void wgmma_ss(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, bool accumulate) {
  emulated::WarpgroupProduct mine{.d = d,
                                  .n = N,
                                  .element = kElement<T>,
                                  .a = nullptr,
                                  .descriptor_a = a,
                                  .descriptor_b = b,
                                  .a_mn_major = MajorA == Major::mn,
                                  .b_mn_major = MajorB == Major::mn,
                                  .accumulate = accumulate};
  emulated::issue_product(mine);
}

template <class T, int N, Major MajorB>
void wgmma_rs(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate) {
  emulated::WarpgroupProduct mine{.d = d,
                                  .n = N,
                                  .element = kElement<T>,
                                  .a = a,
                                  .descriptor_a = 0,
                                  .descriptor_b = b,
                                  .a_mn_major = false,
                                  .b_mn_major = MajorB == Major::mn,
                                  .accumulate = accumulate};
  emulated::issue_product(mine);
}

}  // namespace attune::kernels::ptx
