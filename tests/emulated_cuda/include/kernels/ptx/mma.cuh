// kernels/ptx/mma.cuh in plain C++; the fragments are described there.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "fragments.hpp"
#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::ptx {

template <class T>
inline constexpr emulated::Element kElement =
    std::is_same_v<T, __half> ? emulated::Element::f16 : emulated::Element::bf16;

inline void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  emulated::load_matrices(r, address, false);
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  emulated::load_matrices(r, address, true);
}
inline std::uint32_t movmatrix_trans(std::uint32_t x) { return emulated::transposed_matrix(x); }

template <class T>
void mma_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  emulated::warp_product(c, a, b0, b1, kElement<T>);
}

template <class T>
std::uint32_t pack_pair(float low, float high) {
  const auto bits = [](float x) {
    if constexpr (std::is_same_v<T, __half>)
      return std::uint32_t{std::bit_cast<std::uint16_t>(__float2half_rn(x))};
    else
      return std::uint32_t{std::bit_cast<std::uint16_t>(__float2bfloat16_rn(x))};
  };
  return bits(low) | bits(high) << 16;
}

template <class Kv, bool High = false>
std::uint32_t widen_fp8(std::uint32_t bytes) {
  if (High) bytes >>= 16;
  constexpr auto kKind = std::is_same_v<Kv, __nv_fp8_e5m2> ? __NV_E5M2 : __NV_E4M3;
  const auto half = [&](std::uint32_t byte) {
    return std::uint32_t{
        __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(byte & 0xFF), kKind).x};
  };
  return half(bytes) | half(bytes >> 8) << 16;
}

}  // namespace attune::kernels::ptx
