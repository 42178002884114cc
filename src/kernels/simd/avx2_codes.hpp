// Avx2Codes: Avx2 with codes of fp8_e4m3 widened sixteen at a time, for fewer instructions than
// twice eight (layer kernels).
#pragma once

#include "kernels/simd/avx2.hpp"

namespace attune::kernels::simd {

struct Avx2Codes : Avx2 {
  /// Queries stay in a register: g++ 12 else loads them again for each product.
  static F load_once(const float* p) {
    F x = load(p);
    asm("" : "+x"(x));
    return x;
  }

  static void load_sixteen(const void* p, F (&x)[2]) {
    const __m128i codes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    // As in avx512.hpp: an f16 that is 2^8 too small, and one NaN code.
    const __m256i number =
        _mm256_and_si256(_mm256_srai_epi16(wide, 1), _mm256_set1_epi16(static_cast<short>(0xbfff)));
    const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x7f00));
    const __m256i nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f00));
    const __m256i half = _mm256_or_si256(number, nan);
    const F times = set(256.0f);
    x[0] = mul(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), times);
    x[1] = mul(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), times);
  }
};

}  // namespace attune::kernels::simd
