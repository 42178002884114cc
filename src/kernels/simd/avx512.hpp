// Avx512: sixteen fp32 lanes; F, BW, DQ, VL and F16C (layer kernels). Verbs as in scalar.hpp.
//
// The verbs are a template on the ISA type that uses them: the avx512_bf16 and amx files compile
// the same text with more instructions allowed, and their copies must not share a symbol with ours.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/simd/exp2_polynomial.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::simd {

template <class Isa>
struct Avx512Verbs {
  static constexpr int kLanes = 16;
  static constexpr int kNumColumns = 4;
  static constexpr int kStreams = 1;  ///< of memory, asked for at once (paged_decode/fetch.hpp)
  using F = __m512;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store_n(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F copy_sign(F magnitude, F sign) {
    const __m512i kSign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
    // 0xb8: the sign bit from `sign`, the others from `magnitude`.
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(magnitude), kSign,
                                                         _mm512_castps_si512(sign), 0xb8));
  }
  static float sum(F a) { return _mm512_reduce_add_ps(a); }
  static float largest(F a) { return _mm512_reduce_max_ps(a); }
  static bool any_greater(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
  static F lane_numbers() {
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  static F keep_range(F x, int from, int to, F other) {
    return _mm512_mask_mov_ps(other, static_cast<__mmask16>(first(to) & ~first(from)), x);
  }
  static F keep_bits(F x, std::uint32_t bits, F other) {
    return _mm512_mask_mov_ps(other, static_cast<__mmask16>(bits), x);
  }

  static F exp2(F x) { return scale_by_exponent(x, kExp2Floor5); }
  static F exp2_rough(F x) { return scale_by_exponent(x, kExp2Floor4); }

  static F sum_each(const F (&a)[kLanes]) {
    return sum_each_by(a, [](F x, F y) { return add(x, y); });
  }

  /// The same by another addition.
  template <class Add>
  static F sum_each_by(const F (&a)[kLanes], Add&& plus) {
    F quad[4];  // quad[i]: for a[4i] … a[4i+3], one partial sum in each 128-bit lane
    unroll<4>([&](auto i) {
      const F* b = a + 4 * i;
      const F lo = plus(_mm512_unpacklo_ps(b[0], b[1]), _mm512_unpackhi_ps(b[0], b[1]));
      const F hi = plus(_mm512_unpacklo_ps(b[2], b[3]), _mm512_unpackhi_ps(b[2], b[3]));
      quad[i] = plus(unpack_low_pairs(lo, hi), unpack_high_pairs(lo, hi));
    });
    const F lower = plus(_mm512_shuffle_f32x4(quad[0], quad[1], 0x88),
                         _mm512_shuffle_f32x4(quad[0], quad[1], 0xdd));
    const F upper = plus(_mm512_shuffle_f32x4(quad[2], quad[3], 0x88),
                         _mm512_shuffle_f32x4(quad[2], quad[3], 0xdd));
    return plus(_mm512_shuffle_f32x4(lower, upper, 0x88), _mm512_shuffle_f32x4(lower, upper, 0xdd));
  }

  static void transpose(F (&m)[kLanes]) {
    F t[kLanes];
    unroll<4>([&](auto i) {
      const F* b = m + 4 * i;
      const F ab_lo = _mm512_unpacklo_ps(b[0], b[1]);
      const F ab_hi = _mm512_unpackhi_ps(b[0], b[1]);
      const F cd_lo = _mm512_unpacklo_ps(b[2], b[3]);
      const F cd_hi = _mm512_unpackhi_ps(b[2], b[3]);
      t[4 * i + 0] = unpack_low_pairs(ab_lo, cd_lo);
      t[4 * i + 1] = unpack_high_pairs(ab_lo, cd_lo);
      t[4 * i + 2] = unpack_low_pairs(ab_hi, cd_hi);
      t[4 * i + 3] = unpack_high_pairs(ab_hi, cd_hi);
    });
    // t[4i+c], 128-bit lane q: column 4q + c of rows 4i … 4i+3.
    unroll<4>([&](auto c) {
      const F lo_even = _mm512_shuffle_f32x4(t[c], t[4 + c], 0x88);
      const F lo_odd = _mm512_shuffle_f32x4(t[c], t[4 + c], 0xdd);
      const F hi_even = _mm512_shuffle_f32x4(t[8 + c], t[12 + c], 0x88);
      const F hi_odd = _mm512_shuffle_f32x4(t[8 + c], t[12 + c], 0xdd);
      m[c] = _mm512_shuffle_f32x4(lo_even, hi_even, 0x88);
      m[4 + c] = _mm512_shuffle_f32x4(lo_odd, hi_odd, 0x88);
      m[8 + c] = _mm512_shuffle_f32x4(lo_even, hi_even, 0xdd);
      m[12 + c] = _mm512_shuffle_f32x4(lo_odd, hi_odd, 0xdd);
    });
  }

  static constexpr bool kDeals = true;
  /// The numbers of `in`, one after the other, are dealt out in turn: lane c of out[r] is number
  /// n * c + r.
  template <int n>
  static void deal(const F (&in)[n], F (&out)[n]) {
    const __m512i kFirst = _mm512_setr_epi32(0, n, 2 * n, 3 * n, 4 * n, 5 * n, 6 * n, 7 * n, 8 * n,
                                             9 * n, 10 * n, 11 * n, 12 * n, 13 * n, 14 * n, 15 * n);
    unroll<n>([&](auto r) {
      const __m512i place = _mm512_add_epi32(kFirst, _mm512_set1_epi32(r));
      out[r] = zero();
      // A lookup in two vectors takes an index of five bits and leaves the others alone.
      unroll<(n + 1) / 2>([&](auto i) {
        constexpr __mmask16 kHere = lanes_in_pair(i, n, r);
        constexpr int kSecond = 2 * i + 1 < n ? 2 * i + 1 : 2 * i;
        out[r] = _mm512_mask_mov_ps(out[r], kHere,
                                    _mm512_permutex2var_ps(in[2 * i], place, in[kSecond]));
      });
    });
  }

  template <DType T>
  static F load_as(const void* p) {
    if constexpr (T == DType::f32) return _mm512_loadu_ps(p);
    if constexpr (T == DType::bf16 || T == DType::f16)
      return widen<T>(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    if constexpr (T == DType::fp8_e4m3 || T == DType::fp8_e5m2 || T == DType::i8)
      return widen<T>(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  template <DType T>
  static F load_as_n(const void* p, int n) {
    if constexpr (T == DType::f32) return _mm512_maskz_loadu_ps(first(n), p);
    if constexpr (T == DType::bf16 || T == DType::f16)
      return widen<T>(_mm256_maskz_loadu_epi16(first(n), p));
    if constexpr (T == DType::fp8_e4m3 || T == DType::fp8_e5m2 || T == DType::i8)
      return widen<T>(_mm_maskz_loadu_epi8(first(n), p));
  }
  template <DType T>
  static void store_as_n(void* p, F x, int n) {
    if constexpr (T == DType::f32) _mm512_mask_storeu_ps(p, first(n), x);
    if constexpr (T == DType::bf16) _mm256_mask_storeu_epi16(p, first(n), to_bf16(x));
    if constexpr (T == DType::f16)
      _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
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

  template <int kOffset>
  [[gnu::always_inline]] static void prefetch_at(const char* p) {
    asm volatile("prefetcht0 %c1(%0)" : : "r"(p), "i"(kOffset));
  }

 protected:
  /// The lanes that deal() fills from its i-th two vectors.
  static constexpr __mmask16 lanes_in_pair(int i, int n, int r) {
    unsigned lanes = 0;
    for (int c = 0; c < kLanes; ++c)
      if ((c * n + r) / (2 * kLanes) == i) lanes |= 1u << c;
    return static_cast<__mmask16>(lanes);
  }
  static __mmask16 first(int n) {
    return n >= kLanes ? static_cast<__mmask16>(0xffff)
                       : static_cast<__mmask16>((1u << (n > 0 ? n : 0)) - 1u);
  }
  static F unpack_low_pairs(F a, F b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  static F unpack_high_pairs(F a, F b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }

  template <DType T>
  static F widen(__m256i x) {
    if constexpr (T == DType::bf16)
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
    if constexpr (T == DType::f16) return _mm512_cvtph_ps(x);
  }
  template <DType T>
  static F widen(__m128i x) {
    if constexpr (T == DType::i8) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x));
    // e5m2 is the upper byte of an f16.
    if constexpr (T == DType::fp8_e5m2)
      return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(x), 8));
    if constexpr (T == DType::fp8_e4m3) {
      // Moved into an f16's fields an e4m3 is 2^8 too small, subnormals included; its one NaN code
      // would read as a number.
      const __m256i wide = _mm256_slli_epi16(_mm256_cvtepu8_epi16(x), 8);
      const __m256i half = _mm256_and_si256(_mm256_srai_epi16(wide, 1),
                                            _mm256_set1_epi16(static_cast<short>(0xbfff)));
      const __m256i magnitude =
          _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<short>(0x7f00)));
      const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f00));
      const F value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
      return _mm512_mask_mov_ps(value, nan, _mm512_set1_ps(__builtin_nanf("")));
    }
  }

  /// To nearest even; NaN stays NaN.
  static __m256i to_bf16(F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
  }

  /// 2^x = p(x - floor x) * 2^floor(x); vscalefps floors x itself and knows -inf.
  template <int N>
  static F scale_by_exponent(F x, const float (&coefficients)[N]) {
    constexpr int kFloorQuietly = 0x09;
    const F fraction = _mm512_reduce_ps(x, kFloorQuietly);
    F p = set(coefficients[N - 1]);
    unroll<N - 1>([&](auto i) { p = fma(p, fraction, set(coefficients[N - 2 - i])); });
    return _mm512_scalef_ps(p, x);
  }
};

struct Avx512 : Avx512Verbs<Avx512> {};

}  // namespace attune::kernels::simd
