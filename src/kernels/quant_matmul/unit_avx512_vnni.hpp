// UnitAvx512Vnni: sixteen lanes in one register; AVX-512 F, BW, DQ, VL and VNNI (layer kernels).
// Verbs as body.hpp lists them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/simd/avx512.hpp"

namespace attune::kernels::quant_matmul {

struct Avx512Vnni : simd::Avx512Verbs<Avx512Vnni> {};

struct UnitAvx512Vnni {
  using V = Avx512Vnni;
  static constexpr int kRows = 8;
  static constexpr int kFullZero = 0;
  using F = __m512;
  using I = __m512i;
  using Line = __m512i;

  static F set(float x) { return V::set(x); }
  static F load(const float* p) { return V::load(p); }
  static F load_n(const float* p, int n) { return V::load_n(p, n); }
  static void store_n(float* p, F x, int n) { V::store_n(p, x, n); }
  static F add(F x, F y) { return V::add(x, y); }
  static F mul(F x, F y) { return V::mul(x, y); }
  static F fma(F x, F y, F z) { return V::fma(x, y, z); }
  static F abs(F x) { return V::abs(x); }
  static float largest(F x) {
    if (_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0) return __builtin_nanf("");
    return V::largest(x);
  }
  static std::int32_t store_rounded(std::int8_t* p, F x) {
    const __m512i whole = _mm512_cvtps_epi32(x);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(whole));
    return _mm512_reduce_add_epi32(whole);
  }

  static I integers(std::int32_t x) { return _mm512_set1_epi32(x); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static F halves(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F unsigned_bytes(const std::byte* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static F signed_bytes(const std::byte* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }

  static void prefetch(const std::byte* p) { V::prefetch(p); }
  static Line line(const std::byte* p) { return _mm512_loadu_si512(p); }
  static Line low(Line x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  static Line high(Line x) { return low(_mm512_srli_epi16(x, 4)); }
  static I dot(I sum, Line digits, const std::int8_t* q) {
    int bytes;
    __builtin_memcpy(&bytes, q, sizeof bytes);
    return _mm512_dpbusd_epi32(sum, digits, _mm512_set1_epi32(bytes));
  }
  static I dot_full(I sum, Line digits, const std::int8_t* q) { return dot(sum, digits, q); }
};

}  // namespace attune::kernels::quant_matmul
