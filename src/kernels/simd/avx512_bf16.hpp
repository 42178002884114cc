// Avx512Bf16: Avx512 with products of bf16 pairs, vdpbf16ps, byte lookups, VBMI, and products of
// bytes, VNNI (layer kernels).
#pragma once

#include "kernels/simd/avx512.hpp"
#include "kernels/simd/avx512_bytes.hpp"

namespace attune::kernels::simd {

/// The lower and the upper byte of the bf16 of every non-negative code of eight bits; exact,
/// subnormals, infinity and NaN included.
struct ByteTable {
  alignas(64) std::uint8_t low[128];
  alignas(64) std::uint8_t high[128];
};

/// The bf16 of 2^exponent * digits, exactly; `digits` has at most eight bits.
consteval int bf16_bits(int exponent, int digits) {
  constexpr int kMantissa = 7;
  constexpr int kBias = 127;
  if (digits == 0) return 0;
  exponent += kMantissa;
  for (; digits < 1 << kMantissa; digits *= 2) --exponent;
  return ((exponent + kBias) << kMantissa) + digits - (1 << kMantissa);
}

template <DType T>
consteval int bf16_of_code(int code) {
  if (T == DType::i8) return bf16_bits(0, code);
  constexpr int kMantissa = T == DType::fp8_e4m3 ? 3 : 2;
  constexpr int kBias = T == DType::fp8_e4m3 ? 7 : 15;
  constexpr int kNaN = 0x7fc0;
  constexpr int kInfinity = 0x7f80;
  if (T == DType::fp8_e4m3 && code == 0x7f) return kNaN;
  if (T == DType::fp8_e5m2 && code >= 0x7c) return code == 0x7c ? kInfinity : kNaN;
  const int field = code >> kMantissa;
  const int hidden = field == 0 ? 0 : 1 << kMantissa;
  const int exponent = (field == 0 ? 1 : field) - kBias - kMantissa;
  return bf16_bits(exponent, hidden + (code & ((1 << kMantissa) - 1)));
}

template <DType T>
consteval ByteTable make_byte_table() {
  ByteTable table{};
  for (int code = 0; code < 128; ++code) {
    const int bits = bf16_of_code<T>(code);
    table.low[code] = static_cast<std::uint8_t>(bits & 0xff);
    table.high[code] = static_cast<std::uint8_t>(bits >> 8);
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

  /// Stored numbers that fill a vector are this many vectors of bf16.
  template <DType T>
  static constexpr int kRun = T == DType::bf16 ? 1 : 2;

  /// A vector of stored numbers as bf16; exact for every format of 8 bits.
  template <DType T>
  static void load_run(const void* p, Pairs (&x)[kRun<T>]) {
    if constexpr (T == DType::bf16) {
      x[0] = _mm512_loadu_si512(p);
    } else {
      const Bytes bytes = look_up<T>(for_unpacking(_mm512_loadu_si512(p)));
      x[0] = _mm512_unpacklo_epi8(bytes.low, bytes.high);
      x[1] = _mm512_unpackhi_epi8(bytes.low, bytes.high);
    }
  }

  /// The same in the order of their unpacking, which order_as_keys gives to other numbers.
  template <DType T>
  static void load_keys(const void* p, Pairs (&x)[kRun<T>]) {
    if constexpr (T == DType::bf16) {
      load_run<T>(p, x);
    } else {
      const Bytes bytes = look_up<T>(_mm512_loadu_si512(p));
      x[0] = _mm512_unpacklo_epi8(bytes.low, bytes.high);
      x[1] = _mm512_unpackhi_epi8(bytes.low, bytes.high);
    }
  }
  /// Of 64 bf16.
  static void order_as_keys(std::uint16_t* x) {
    const __m512i a = _mm512_loadu_si512(x);
    const __m512i b = _mm512_loadu_si512(x + kNumbers);
    _mm512_storeu_si512(x, _mm512_shuffle_i64x2(a, b, 0x88));
    _mm512_storeu_si512(x + kNumbers, _mm512_shuffle_i64x2(a, b, 0xdd));
  }

  /// 64 numbers of 8 bits of a and of b as columns of both: lane 4q + i of x[c] holds number
  /// 16q + 4c + i of each. Codes are interleaved before they are looked up, in half the shuffles.
  template <DType T>
  static void load_columns(const void* a, const void* b, Pairs (&x)[4]) {
    const __m512i first = _mm512_loadu_si512(a);
    const __m512i second = _mm512_loadu_si512(b);
    const Bytes low = look_up<T>(_mm512_unpacklo_epi8(first, second));
    const Bytes high = look_up<T>(_mm512_unpackhi_epi8(first, second));
    x[0] = _mm512_unpacklo_epi8(low.low, low.high);
    x[1] = _mm512_unpackhi_epi8(low.low, low.high);
    x[2] = _mm512_unpacklo_epi8(high.low, high.high);
    x[3] = _mm512_unpackhi_epi8(high.low, high.high);
  }

  /// 32 stored numbers as bf16.
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

  /// Lane i: number i of `first`, then of `second`.
  static Pairs pair_lanes(F first, F second) {
    const __m512i kAlternate =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(kAlternate, round_to_pairs(first, second));
  }

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
  static constexpr ByteTable kTable = make_byte_table<T>();

  struct Bytes {
    __m512i low;
    __m512i high;
  };

  /// The order that unpacking wants: eight codes of the first half, eight of the second, and so on.
  static __m512i for_unpacking(__m512i codes) {
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), codes);
  }

  /// The lower and upper bytes of the bf16 of 64 codes.
  template <DType T>
  static Bytes look_up(__m512i codes) {
    const __m512i kSign = _mm512_set1_epi8(static_cast<char>(0x80));
    const ByteTable& t = kTable<T>;
    const __m512i magnitude = T == DType::i8 ? _mm512_abs_epi8(codes) : codes;
    // A lookup takes an index of seven bits and leaves the eighth alone.
    const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(t.low), magnitude,
                                                 _mm512_load_si512(t.low + 64));
    __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(t.high), magnitude,
                                            _mm512_load_si512(t.high + 64));
    // The one magnitude of eight bits.
    if constexpr (T == DType::i8)
      high = _mm512_mask_mov_epi8(high, _mm512_movepi8_mask(magnitude), _mm512_set1_epi8(0x43));
    // 0xf8: high | (codes & sign).
    return {low, _mm512_ternarylogic_epi32(high, codes, kSign, 0xf8)};
  }

  template <DType T>
  static Pairs narrow(__m256i x) {
    const Bytes bytes = look_up<T>(for_unpacking(_mm512_castsi256_si512(x)));
    return _mm512_unpacklo_epi8(bytes.low, bytes.high);
  }
};

struct Avx512Bf16 : Avx512Bf16Verbs<Avx512Bf16>, Avx512ByteVerbs<Avx512Bf16> {
  using F = Avx512Bf16Verbs<Avx512Bf16>::F;
};

}  // namespace attune::kernels::simd
