// UnitAvx2: sixteen lanes in two registers; AVX2, FMA, F16C (layer kernels). Verbs as body.hpp
// lists them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/simd/avx2.hpp"

namespace attune::kernels::quant_matmul {

struct UnitAvx2 {
  using V = simd::Avx2;
  static constexpr int kRows = 2;
  /// vpmaddubsw adds pairs in 16 bits, which two products of full bytes overflow: dot_full takes
  /// the digits as signed numbers, 128 less.
  static constexpr int kFullZero = 128;
  struct F {
    __m256 a, b;
  };
  struct I {
    __m256i a, b;
  };
  struct Line {
    __m256i a, b;
  };

  static F set(float x) { return {V::set(x), V::set(x)}; }
  static F load(const float* p) { return {V::load(p), V::load(p + 8)}; }
  static F load_n(const float* p, int n) { return {V::load_n(p, n), V::load_n(p + 8, n - 8)}; }
  static void store_n(float* p, F x, int n) {
    V::store_n(p, x.a, n);
    V::store_n(p + 8, x.b, n - 8);
  }
  static F add(F x, F y) { return {V::add(x.a, y.a), V::add(x.b, y.b)}; }
  static F mul(F x, F y) { return {V::mul(x.a, y.a), V::mul(x.b, y.b)}; }
  static F fma(F x, F y, F z) { return {V::fma(x.a, y.a, z.a), V::fma(x.b, y.b, z.b)}; }
  static F abs(F x) { return {V::abs(x.a), V::abs(x.b)}; }
  static float largest(F x) {
    const F nan = {_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)};
    if (_mm256_movemask_ps(_mm256_or_ps(nan.a, nan.b)) != 0) return __builtin_nanf("");
    return V::largest(V::max(x.a, x.b));
  }
  static std::int32_t store_rounded(std::int8_t* p, F x) {
    const __m256i a = _mm256_cvtps_epi32(x.a);
    const __m256i b = _mm256_cvtps_epi32(x.b);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
    const __m256i pairs = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
  }

  static I integers(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
  static F halves(const std::byte* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
  }
  static F unsigned_bytes(const std::byte* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight(p))),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight(p + 8)))};
  }
  static F signed_bytes(const std::byte* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight(p))),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight(p + 8)))};
  }

  static void prefetch(const std::byte* p) { V::prefetch(p); }
  static Line line(const std::byte* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
  }
  static Line low(Line x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
  }
  static Line high(Line x) { return low({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)}); }
  static I dot(I sum, Line digits, const std::int8_t* q) {
    const __m256i x = four(q);
    return {_mm256_add_epi32(sum.a, quads(_mm256_maddubs_epi16(digits.a, x))),
            _mm256_add_epi32(sum.b, quads(_mm256_maddubs_epi16(digits.b, x)))};
  }
  static I dot_full(I sum, Line digits, const std::int8_t* q) {
    const __m256i x = four(q);
    return {_mm256_add_epi32(sum.a, quads(signed_pairs(digits.a, x))),
            _mm256_add_epi32(sum.b, quads(signed_pairs(digits.b, x)))};
  }

 private:
  static __m128i eight(const std::byte* p) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  static __m256i four(const std::int8_t* q) {
    int bytes;
    __builtin_memcpy(&bytes, q, sizeof bytes);
    return _mm256_set1_epi32(bytes);
  }
  static __m256i quads(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  static __m256i signed_pairs(__m256i digits, __m256i x) {
    const __m256i w = _mm256_xor_si256(digits, _mm256_set1_epi8(static_cast<char>(0x80)));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  }
};

}  // namespace attune::kernels::quant_matmul
