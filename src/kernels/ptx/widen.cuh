// Four fp8 numbers to two registers of 16-bit pairs, times a scale.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/ptx/mma.cuh"

namespace attune::kernels::ptx {

/// The fp32 value of each half of a pair of fp16.
__device__ __forceinline__ void unpack_f16(std::uint32_t pair, float& low, float& high) {
  asm("{\n"
      ".reg .f16 l, h;\n"
      "mov.b32 {l, h}, %2;\n"
      "cvt.f32.f16 %0, l;\n"
      "cvt.f32.f16 %1, h;\n"
      "}"
      : "=f"(low), "=f"(high)
      : "r"(pair));
}

/// e4m3 numbers of `four`, lowest byte first, times `scale`, rounded once.
template <class Element>
__device__ __forceinline__ void widen_e4m3(std::uint32_t four, float scale, std::uint32_t& first,
                                           std::uint32_t& second) {
  float x[4];
  unpack_f16(widen_fp8<__nv_fp8_e4m3>(four & 0xffffu), x[0], x[1]);
  unpack_f16(widen_fp8<__nv_fp8_e4m3>(four >> 16), x[2], x[3]);
  first = pack_pair<Element>(x[0] * scale, x[1] * scale);
  second = pack_pair<Element>(x[2] * scale, x[3] * scale);
}

}  // namespace attune::kernels::ptx
