// Avx512Bf16: Avx512 with products of bf16 pairs, vdpbf16ps (layer kernels).
#pragma once

#include "kernels/simd/avx512.hpp"

namespace attune::kernels::simd {

/// The bf16 of every non-negative code of an 8-bit float; exact, subnormals, infinity and NaN
/// included.
struct Fp8Table {
  alignas(64) std::uint16_t bf16[128];
};

template <DType T>
consteval Fp8Table make_fp8_table() {
  constexpr int kMantissa = T == DType::fp8_e4m3 ? 3 : 2;
  constexpr int kBias = T == DType::fp8_e4m3 ? 7 : 15;
  constexpr int kBf16Mantissa = 7;
  constexpr int kBf16Bias = 127;
  Fp8Table table{};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> kMantissa;
    int mantissa = code & ((1 << kMantissa) - 1);
    int bits = 0;
    if (exponent == 0) {
      // A subnormal number is normal in bf16: move its first digit up to the hidden place.
      exponent = 1;
      while (mantissa != 0 && mantissa < 1 << kMantissa) {
        mantissa *= 2;
        --exponent;
      }
    } else {
      mantissa += 1 << kMantissa;
    }
    if (mantissa != 0)
      bits = ((exponent - kBias + kBf16Bias) << kBf16Mantissa) +
             ((mantissa - (1 << kMantissa)) << (kBf16Mantissa - kMantissa));
    if (T == DType::fp8_e4m3 && code == 0x7f) bits = 0x7fc0;
    if (T == DType::fp8_e5m2 && code == 0x7c) bits = 0x7f80;
    if (T == DType::fp8_e5m2 && code > 0x7c) bits = 0x7fc0;
    table.bf16[code] = static_cast<std::uint16_t>(bits);
  }
  return table;
}

template <class Isa>
struct Avx512Bf16Verbs : Avx512Verbs<Isa> {
  using Base = Avx512Verbs<Isa>;
  using F = typename Base::F;
  using Pairs = __m512i;  ///< 32 bf16: lane i holds numbers 2i and 2i+1
  static constexpr int kNumbers = 32;

  /// Lane i: acc + a[2i] * b[2i] + a[2i+1] * b[2i+1]. Subnormal bf16 count as zero.
  static F dot_pairs(F acc, Pairs a, Pairs b) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
  }
  static Pairs load_pairs(const std::uint16_t* p) { return _mm512_loadu_si512(p); }
  static void store_pairs(std::uint16_t* p, Pairs x) { _mm512_storeu_si512(p, x); }
  static Pairs broadcast_pair(const std::uint16_t* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }

  /// 32 stored numbers as bf16; exact for every format of 8 bits.
  template <DType T>
  static Pairs load_pairs_as(const void* p) {
    if constexpr (T == DType::bf16) return _mm512_loadu_si512(p);
    if constexpr (T != DType::bf16)
      return narrow<T>(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  template <DType T>
  static Pairs load_pairs_as_n(const void* p, int n) {
    if constexpr (T == DType::bf16) return _mm512_maskz_loadu_epi16(first_of_32(n), p);
    if constexpr (T != DType::bf16) return narrow<T>(_mm256_maskz_loadu_epi8(first_of_32(n), p));
  }

  template <DType T>
  static void store_as_n(void* p, F x, int n) {
    if constexpr (T == DType::bf16)
      _mm256_mask_storeu_epi16(p, Base::first(n), (__m256i)_mm512_cvtneps_pbh(x));
    if constexpr (T != DType::bf16) Base::template store_as_n<T>(p, x, n);
  }

  static Pairs round_to_pairs(F low, F high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

  /// A 16 by 16 matrix of pairs.
  static void transpose_pairs(Pairs (&m)[Base::kLanes]) {
    F cells[Base::kLanes];
    unroll<Base::kLanes>([&](auto i) { cells[i] = _mm512_castsi512_ps(m[i]); });
    Base::transpose(cells);
    unroll<Base::kLanes>([&](auto i) { m[i] = _mm512_castps_si512(cells[i]); });
  }

  /// low: a[0] b[0] a[1] b[1] … a[15] b[15]; high: the same of numbers 16 to 31.
  static void interleave(Pairs a, Pairs b, Pairs& low, Pairs& high) {
    const __m512i kLow =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i kHigh = _mm512_add_epi16(kLow, _mm512_set1_epi16(16));
    low = _mm512_permutex2var_epi16(a, kLow, b);
    high = _mm512_permutex2var_epi16(a, kHigh, b);
  }

 private:
  static __mmask32 first_of_32(int n) {
    return n >= kNumbers ? 0xffffffffu : (1u << (n > 0 ? n : 0)) - 1u;
  }
  template <DType T>
  static constexpr Fp8Table kTable = make_fp8_table<T>();

  template <DType T>
  static Pairs narrow(__m256i x) {
    if constexpr (T == DType::i8) {
      const __m128i low = _mm256_castsi256_si128(x);
      const __m128i high = _mm256_extracti128_si256(x, 1);
      return round_to_pairs(Base::template widen<T>(low), Base::template widen<T>(high));
    } else {
      // Two lookups of 64 entries (an index takes its lowest six bits), chosen by the seventh bit.
      const std::uint16_t* const table = kTable<T>.bf16;
      const __m512i code = _mm512_cvtepu8_epi16(x);
      const __m512i low =
          _mm512_permutex2var_epi16(_mm512_load_si512(table), code, _mm512_load_si512(table + 32));
      const __m512i high = _mm512_permutex2var_epi16(_mm512_load_si512(table + 64), code,
                                                     _mm512_load_si512(table + 96));
      const __m512i magnitude =
          _mm512_mask_mov_epi16(low, _mm512_test_epi16_mask(code, _mm512_set1_epi16(0x40)), high);
      // 0xf8: magnitude | (code << 8 & sign).
      return _mm512_ternarylogic_epi32(magnitude, _mm512_slli_epi16(code, 8),
                                       _mm512_set1_epi16(static_cast<short>(0x8000)), 0xf8);
    }
  }
};

struct Avx512Bf16 : Avx512Bf16Verbs<Avx512Bf16> {};

}  // namespace attune::kernels::simd
