// kernels/ptx/mma.cuh in plain C++; the fragments are described there.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/ptx/mbarrier.cuh"
#include "machine.hpp"

namespace attune::kernels::ptx {

namespace fragments {

template <class T>
float element(std::uint32_t pair, int which) {
  const auto bits = static_cast<std::uint16_t>(pair >> 16 * which);
  return static_cast<float>(std::bit_cast<T>(bits));
}

struct Matrices {
  std::uint32_t* r = nullptr;
  std::uint32_t address = 0;
};

inline std::uint16_t at(void* const* lanes, int matrix, int row, int column) {
  const std::uint32_t address = static_cast<Matrices*>(lanes[8 * matrix + row])->address;
  std::uint16_t bits;
  std::memcpy(&bits, emulated::shared_pointer(address) + 2 * column, 2);
  return bits;
}

template <bool Transposed>
void load(void* const* lanes) {
  for (int l = 0; l < 32; ++l)
    if (static_cast<Matrices*>(lanes[l])->address % 16 != 0)
      emulated::trap("ldmatrix: a row's address is no multiple of 16 bytes");
  for (int l = 0; l < 32; ++l)
    for (int m = 0; m < 4; ++m) {
      const int row = l / 4;
      const int column = 2 * (l % 4);
      const std::uint32_t low = Transposed ? at(lanes, m, column, row) : at(lanes, m, row, column);
      const std::uint32_t high =
          Transposed ? at(lanes, m, column + 1, row) : at(lanes, m, row, column + 1);
      static_cast<Matrices*>(lanes[l])->r[m] = low | high << 16;
    }
}

struct Product {
  float* c = nullptr;
  const std::uint32_t* a = nullptr;
  std::uint32_t b[2] = {};
};

template <class T>
void multiply(void* const* lanes) {
  float a[16][16];
  float b[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto& p = *static_cast<Product*>(lanes[l]);
    const int g = l / 4;
    const int j = l % 4;
    for (int e = 0; e < 2; ++e) {
      for (int i = 0; i < 4; ++i)
        a[g + 8 * (i % 2)][2 * j + 8 * (i / 2) + e] = element<T>(p.a[i], e);
      for (int i = 0; i < 2; ++i) b[2 * j + 8 * i + e][g] = element<T>(p.b[i], e);
    }
  }
  float c[16][8] = {};
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n) c[i][n] += a[i][k] * b[k][n];
  for (int l = 0; l < 32; ++l) {
    auto& p = *static_cast<Product*>(lanes[l]);
    for (int i = 0; i < 4; ++i) p.c[i] += c[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
  }
}

struct Word {
  std::uint32_t in = 0;
  std::uint32_t out = 0;
};

inline void transpose(void* const* lanes) {
  const auto half = [&](int row, int column) {
    return static_cast<Word*>(lanes[4 * row + column / 2])->in >> 16 * (column % 2) & 0xFFFF;
  };
  for (int l = 0; l < 32; ++l) {
    const int row = l / 4;
    const int column = 2 * (l % 4);
    static_cast<Word*>(lanes[l])->out = half(column, row) | half(column + 1, row) << 16;
  }
}

}  // namespace fragments

inline void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  fragments::Matrices mine{r, address};
  emulated::meet_warp(0xffffffffu, "ldmatrix", &mine, fragments::load<false>);
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  fragments::Matrices mine{r, address};
  emulated::meet_warp(0xffffffffu, "ldmatrix.trans", &mine, fragments::load<true>);
}
inline std::uint32_t movmatrix_trans(std::uint32_t x) {
  fragments::Word mine{x, 0};
  emulated::meet_warp(0xffffffffu, "movmatrix", &mine, fragments::transpose);
  return mine.out;
}

template <class T>
void mma_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  fragments::Product mine{c, a, {b0, b1}};
  emulated::meet_warp(0xffffffffu, "mma", &mine, fragments::multiply<T>);
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
