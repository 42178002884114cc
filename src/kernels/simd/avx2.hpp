// Avx2: eight fp32 lanes; AVX2, FMA and F16C (layer kernels). Verbs as in scalar.hpp.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/simd/exp2_polynomial.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::simd {

struct Avx2 {
  static constexpr int kLanes = 8;
  static constexpr int kNumColumns = 2;
  static constexpr int kStreams = 1;     ///< of memory, asked for at once (paged_decode/fetch.hpp)
  static constexpr bool kDeals = false;  ///< whether there is deal(), as in avx512.hpp
  using F = __m256;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F load_n(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
  static void store_n(float* p, F x, int n) { _mm256_maskstore_ps(p, first(n), x); }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(set(-0.0f), a); }
  static F copy_sign(F magnitude, F sign) {
    return _mm256_or_ps(abs(magnitude), _mm256_and_ps(set(-0.0f), sign));
  }
  static float sum(F a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static float largest(F a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }
  static bool any_greater(F a, F b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
  }
  static F lane_numbers() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
  static F keep_range(F x, int from, int to, F other) {
    return _mm256_blendv_ps(other, x,
                            _mm256_castsi256_ps(_mm256_andnot_si256(first(from), first(to))));
  }
  static F keep_bits(F x, std::uint32_t bits, F other) {
    const __m256i lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i picked = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane_bit);
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(picked, lane_bit)));
  }

  static F exp2(F x) {
    // Below 2^-126 the result is 0: a subnormal weight changes nothing. The operand order of max
    // and the unordered compare let NaN through.
    constexpr float kLeast = -126.0f;
    const F limited = max(set(kLeast), x);
    const F whole = _mm256_round_ps(limited, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const F fraction = sub(limited, whole);
    F p = set(kExp2Near5[5]);
    unroll<5>([&](auto i) { p = fma(p, fraction, set(kExp2Near5[4 - i])); });
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
    const F power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    return _mm256_and_ps(mul(p, power), _mm256_cmp_ps(x, set(kLeast), _CMP_NLT_UQ));
  }
  static F exp2_rough(F x) { return exp2(x); }

  static F sum_each(const F (&a)[kLanes]) {
    F quad[2];  // quad[i]: for a[4i] … a[4i+3], one partial sum in each 128-bit lane
    unroll<2>([&](auto i) {
      const F* b = a + 4 * i;
      quad[i] = _mm256_hadd_ps(_mm256_hadd_ps(b[0], b[1]), _mm256_hadd_ps(b[2], b[3]));
    });
    return add(_mm256_permute2f128_ps(quad[0], quad[1], 0x20),
               _mm256_permute2f128_ps(quad[0], quad[1], 0x31));
  }

  static void transpose(F (&m)[kLanes]) {
    F t[kLanes];
    unroll<2>([&](auto i) {
      const F* b = m + 4 * i;
      const F ab_lo = _mm256_unpacklo_ps(b[0], b[1]);
      const F ab_hi = _mm256_unpackhi_ps(b[0], b[1]);
      const F cd_lo = _mm256_unpacklo_ps(b[2], b[3]);
      const F cd_hi = _mm256_unpackhi_ps(b[2], b[3]);
      t[4 * i + 0] = _mm256_shuffle_ps(ab_lo, cd_lo, 0x44);
      t[4 * i + 1] = _mm256_shuffle_ps(ab_lo, cd_lo, 0xee);
      t[4 * i + 2] = _mm256_shuffle_ps(ab_hi, cd_hi, 0x44);
      t[4 * i + 3] = _mm256_shuffle_ps(ab_hi, cd_hi, 0xee);
    });
    unroll<4>([&](auto c) {
      m[c] = _mm256_permute2f128_ps(t[c], t[4 + c], 0x20);
      m[4 + c] = _mm256_permute2f128_ps(t[c], t[4 + c], 0x31);
    });
  }

  template <DType T>
  static F load_as(const void* p) {
    if constexpr (T == DType::f32) return _mm256_loadu_ps(static_cast<const float*>(p));
    if constexpr (T == DType::bf16 || T == DType::f16)
      return widen<T>(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    if constexpr (T == DType::fp8_e4m3 || T == DType::fp8_e5m2 || T == DType::i8)
      return widen<T>(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  template <DType T>
  static F load_as_n(const void* p, int n) {
    if (n >= kLanes) return load_as<T>(p);
    alignas(32) char held[32] = {};
    if (n > 0) __builtin_memcpy(held, p, static_cast<std::size_t>(n) * bytes_of(T));
    return load_as<T>(held);
  }
  template <DType T>
  static void store_as_n(void* p, F x, int n) {
    if constexpr (T == DType::f32) store_n(static_cast<float*>(p), x, n);
    if constexpr (T == DType::bf16) store_halves(p, to_bf16(x), n);
    if constexpr (T == DType::f16)
      store_halves(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT), n);
  }

  // Volatile: g++ 12 takes a function that only prefetches for one that does nothing, and moves
  // its built-in away from where a kernel paces it. The address in a register: an operand in memory
  // would keep sums from staying in registers.
  [[gnu::always_inline]] static void prefetch(const void* p) {
    asm volatile("prefetcht0 (%0)" : : "r"(p));
  }
  [[gnu::always_inline]] static void prefetch_far(const void* p) {
    asm volatile("prefetcht1 (%0)" : : "r"(p));
  }

 private:
  static constexpr std::size_t bytes_of(DType t) {
    return t == DType::f32 ? 4 : t == DType::bf16 || t == DType::f16 ? 2 : 1;
  }
  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static void store_halves(void* p, __m128i x, int n) {
    if (n >= kLanes) {
      _mm_storeu_si128(static_cast<__m128i*>(p), x);
    } else if (n > 0) {
      alignas(16) char held[16];
      _mm_store_si128(reinterpret_cast<__m128i*>(held), x);
      __builtin_memcpy(p, held, static_cast<std::size_t>(n) * 2);
    }
  }
  template <DType T>
  static F widen(__m128i x) {
    if constexpr (T == DType::bf16)
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    if constexpr (T == DType::f16) return _mm256_cvtph_ps(x);
    if constexpr (T == DType::i8) return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x));
    if constexpr (T == DType::fp8_e5m2)
      return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(x), 8));
    if constexpr (T == DType::fp8_e4m3) {
      // As in avx512.hpp: an f16 that is 2^8 too small, and one NaN code.
      const __m128i wide = _mm_slli_epi16(_mm_cvtepu8_epi16(x), 8);
      const __m128i half =
          _mm_and_si128(_mm_srai_epi16(wide, 1), _mm_set1_epi16(static_cast<short>(0xbfff)));
      const __m128i magnitude = _mm_and_si128(wide, _mm_set1_epi16(0x7f00));
      const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f00));
      const F value = mul(_mm256_cvtph_ps(half), set(256.0f));
      return _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_cvtepi16_epi32(nan)));
    }
  }
  static __m128i to_bf16(F x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
};

}  // namespace attune::kernels::simd
