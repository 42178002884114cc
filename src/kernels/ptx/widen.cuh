// Fp8 numbers to pairs of fp16, times a scale.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/ptx/mma.cuh"

namespace attune::kernels::ptx {

/// The e4m3 numbers of `four`, lowest byte first, times the pair `scale`, rounded once.
__device__ __forceinline__ void widen_e4m3(std::uint32_t four, std::uint32_t scale,
                                           std::uint32_t& first, std::uint32_t& second) {
  const std::uint32_t low = widen_fp8<__nv_fp8_e4m3>(four & 0xffffu);
  const std::uint32_t high = widen_fp8<__nv_fp8_e4m3>(four >> 16);
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(first) : "r"(low), "r"(scale));
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(second) : "r"(high), "r"(scale));
}

/// A pair of bf16 as a pair of fp16.
__device__ __forceinline__ std::uint32_t f16_of_bf16(std::uint32_t pair) {
  return pack_pair<__half>(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

}  // namespace attune::kernels::ptx
