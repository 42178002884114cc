#include "fragments.hpp"

#include <bit>
#include <cstring>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "machine.hpp"
#include "vector_clones.hpp"

namespace attune::emulated {
namespace {

inline float of_half(std::uint32_t bits) {
  // The exponent is brought from fp16's bias to fp32's by a product, which is exact for subnormal
  // numbers, too.
  const std::uint32_t magnitude = (bits & 0x7FFF) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t value = (bits & 0x7C00) == 0x7C00 ? magnitude | 0x7F800000 : finite;
  return std::bit_cast<float>(value | (bits & 0x8000) << 16);
}

inline float of_bfloat(std::uint32_t bits) { return std::bit_cast<float>(bits << 16); }

inline float of_e4m3(std::uint32_t bits) {
  const auto byte = static_cast<__nv_fp8_storage_t>(bits & 0xFF);
  return of_half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3).x);
}

ATTUNE_VECTOR_CLONES void widen_halves(const std::uint16_t* from, int count, float* to) {
  for (int i = 0; i < count; ++i) to[i] = of_half(from[i]);
}

ATTUNE_VECTOR_CLONES void widen_bfloats(const std::uint16_t* from, int count, float* to) {
  for (int i = 0; i < count; ++i) to[i] = of_bfloat(from[i]);
}

/// c += a b, in that order of k.
ATTUNE_VECTOR_CLONES void multiply(const float (&a)[16][16], const float (&b)[16][8],
                                   float (&c)[16][8]) {
  for (int i = 0; i < 16; ++i) {
    float sum[8] = {};
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n) sum[n] += a[i][k] * b[k][n];
    for (int n = 0; n < 8; ++n) c[i][n] = sum[n];
  }
}

struct Matrices {
  std::uint32_t* r = nullptr;
  std::uint32_t address = 0;
};

template <bool Transposed>
void load(void* const* lanes) {
  std::uint16_t rows[4][8][8];
  for (int l = 0; l < 32; ++l) {
    const std::uint32_t address = static_cast<Matrices*>(lanes[l])->address;
    if (address % 16 != 0) trap("ldmatrix: a row's address is no multiple of 16 bytes");
    std::memcpy(rows[l / 8][l % 8], shared_pointer(address), 16);
  }
  for (int l = 0; l < 32; ++l)
    for (int m = 0; m < 4; ++m) {
      const int row = l / 4;
      const int column = 2 * (l % 4);
      const std::uint32_t low = Transposed ? rows[m][column][row] : rows[m][row][column];
      const std::uint32_t high = Transposed ? rows[m][column + 1][row] : rows[m][row][column + 1];
      static_cast<Matrices*>(lanes[l])->r[m] = low | high << 16;
    }
}

struct Word {
  std::uint32_t in = 0;
  std::uint32_t out = 0;
};

void transpose(void* const* lanes) {
  const auto half = [&](int row, int column) {
    return static_cast<Word*>(lanes[4 * row + column / 2])->in >> 16 * (column % 2) & 0xFFFF;
  };
  for (int l = 0; l < 32; ++l) {
    const int row = l / 4;
    const int column = 2 * (l % 4);
    static_cast<Word*>(lanes[l])->out = half(column, row) | half(column + 1, row) << 16;
  }
}

struct Product {
  float* c = nullptr;
  const std::uint32_t* a = nullptr;
  std::uint32_t b[2] = {};
};

template <Element E>
void multiply_lanes(void* const* lanes) {
  constexpr auto kWiden = [](std::uint32_t pair, int which) {
    const std::uint32_t bits = pair >> 16 * which & 0xFFFF;
    return E == Element::f16 ? of_half(bits) : of_bfloat(bits);
  };
  float a[16][16];
  float b[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto& p = *static_cast<Product*>(lanes[l]);
    const int g = l / 4;
    const int j = l % 4;
    for (int e = 0; e < 2; ++e) {
      for (int i = 0; i < 4; ++i) a[g + 8 * (i % 2)][2 * j + 8 * (i / 2) + e] = kWiden(p.a[i], e);
      for (int i = 0; i < 2; ++i) b[2 * j + 8 * i + e][g] = kWiden(p.b[i], e);
    }
  }
  float c[16][8];
  multiply(a, b, c);
  for (int l = 0; l < 32; ++l) {
    auto& p = *static_cast<Product*>(lanes[l]);
    for (int i = 0; i < 4; ++i) p.c[i] += c[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
  }
}

}  // namespace

float widened(std::uint16_t bits, Element element) {
  switch (element) {
    case Element::f16: return of_half(bits);
    case Element::bf16: return of_bfloat(bits);
    case Element::e4m3_low: return of_e4m3(bits);
    case Element::e4m3_high: return of_e4m3(std::uint32_t{bits} >> 8);
  }
  return 0.0f;
}

void widen(const std::uint16_t* from, int count, Element element, float* to) {
  switch (element) {
    case Element::f16: return widen_halves(from, count, to);
    case Element::bf16: return widen_bfloats(from, count, to);
    case Element::e4m3_low:
    case Element::e4m3_high:
      for (int i = 0; i < count; ++i) to[i] = widened(from[i], element);
  }
}

void load_matrices(std::uint32_t (&r)[4], std::uint32_t address, bool transposed) {
  Matrices mine{r, address};
  if (transposed)
    meet_warp(0xffffffffu, "ldmatrix.trans", &mine, load<true>);
  else
    meet_warp(0xffffffffu, "ldmatrix", &mine, load<false>);
}

std::uint32_t transposed_matrix(std::uint32_t word) {
  Word mine{word, 0};
  meet_warp(0xffffffffu, "movmatrix", &mine, transpose);
  return mine.out;
}

void warp_product(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  Element element) {
  Product mine{c, a, {b0, b1}};
  if (element == Element::f16)
    meet_warp(0xffffffffu, "mma.f16", &mine, multiply_lanes<Element::f16>);
  else
    meet_warp(0xffffffffu, "mma.bf16", &mine, multiply_lanes<Element::bf16>);
}

}  // namespace attune::emulated
