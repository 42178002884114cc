// The warp-wide matrix product of sm_80 and what feeds it (PTX ISA 9.7.14).
//
// Fragments, for lane l with g = l / 4 and j = l % 4 (two 16-bit values a register, low half
// first):
//   A [16 x 16]  a0 (g, 2j)  a1 (g + 8, 2j)  a2 (g, 2j + 8)  a3 (g + 8, 2j + 8)
//   B [16 x 8]   b0 (2j, g)  b1 (2j + 8, g)          pairs run down a column
//   C [16 x 8]   c0 c1 (g, 2j)  c2 c3 (g + 8, 2j)    fp32
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::ptx {

/// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// The same, each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// Transposes one 8 x 8 matrix of 16-bit elements spread over the warp as a C fragment's pairs.
__device__ __forceinline__ std::uint32_t movmatrix_trans(std::uint32_t x) {
  std::uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/// c += a b, 16 x 8 x 16; T is the type of a and b.
template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const std::uint32_t (&a)[4],
                                            std::uint32_t b0, std::uint32_t b1);

template <>
__device__ __forceinline__ void mma_16x8x16<__nv_bfloat16>(float (&c)[4],
                                                           const std::uint32_t (&a)[4],
                                                           std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_16x8x16<__half>(float (&c)[4], const std::uint32_t (&a)[4],
                                                    std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two floats in one register, `low` in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high);

template <>
__device__ __forceinline__ std::uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

template <>
__device__ __forceinline__ std::uint32_t pack_pair<__half>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

/// Two stored fp8 numbers, the low or the high half of `bytes`, as a pair of fp16. The halves are
/// named, not shifted: the conversion reads either one.
template <class Kv, bool High = false>
__device__ __forceinline__ std::uint32_t widen_fp8(std::uint32_t bytes) {
  constexpr std::uint32_t kToUpperBytes = High ? 0x3424 : 0x1404;
  if constexpr (std::is_same_v<Kv, __nv_fp8_e5m2>) {
    // e5m2 is the upper half of fp16.
    return __byte_perm(bytes, 0, kToUpperBytes);
  } else {
#if __CUDA_ARCH__ >= 890
    std::uint32_t pair;
    if constexpr (High)
      asm("{\n"
          ".reg .b16 l, h;\n"
          "mov.b32 {l, h}, %1;\n"
          "cvt.rn.f16x2.e4m3x2 %0, h;\n"
          "}"
          : "=r"(pair)
          : "r"(bytes));
    else
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<std::uint16_t>(bytes)));
    return pair;
#else
    // Moving sign, exponent and mantissa into fp16's places leaves 2^-8 of the value, exactly.
    const std::uint32_t spread = __byte_perm(bytes, 0, kToUpperBytes);
    const std::uint32_t moved = (spread & 0x80008000u) | ((spread & 0x7f007f00u) >> 1);
    std::uint32_t pair;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(moved), "r"(0x5c005c00u));
    return pair;
#endif
  }
}

}  // namespace attune::kernels::ptx
