// Products of bytes with AVX-512-VNNI (layer kernels): fours of unsigned and signed bytes, summed
// in 32 bits, exactly. A base of the ISA types whose files are compiled with it.
#pragma once

#include <cstdint>

#include "kernels/simd/avx512.hpp"

namespace attune::kernels::simd {

template <class Isa>
struct Avx512ByteVerbs {
  using F = typename Avx512Verbs<Isa>::F;
  using Fours = __m512i;  ///< 64 of them
  using Sums = __m512i;   ///< 16, of 32 bits

  static Fours load_fours(const void* p) { return _mm512_loadu_si512(p); }
  /// The first n; zeros behind.
  static Fours load_fours_n(const void* p, std::int64_t n) {
    const std::uint64_t first = n >= 64 ? ~0ull : (1ull << (n > 0 ? n : 0)) - 1ull;
    return _mm512_maskz_loadu_epi8(first, p);
  }
  /// In each lane the same four bytes.
  static Fours broadcast_four(const std::uint8_t* p) {
    int four;
    __builtin_memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
  }
  static Fours ones() { return _mm512_set1_epi8(1); }
  /// Signed bytes + 128, unsigned.
  static Fours raise(Fours x) {
    return _mm512_xor_si512(x, _mm512_set1_epi8(static_cast<char>(0x80)));
  }

  static Sums no_sums() { return _mm512_setzero_si512(); }
  static Sums load_sums(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  static void store_sums(std::int32_t* p, Sums x) { _mm512_storeu_si512(p, x); }
  /// Lane i: acc + the products of bytes 4i … 4i+3.
  static Sums dot_fours(Sums acc, Fours of_unsigned, Fours of_signed) {
    // By hand: around g++ 12's intrinsic sums are copied to and fro between two vector types.
    asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(of_unsigned), "vm"(of_signed));
    return acc;
  }
  template <int kBits>
  static Sums times_power(Sums x) {
    return _mm512_slli_epi32(x, kBits);
  }
  static Sums add_sums(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
  static Sums negate(Sums x) { return _mm512_sub_epi32(_mm512_setzero_si512(), x); }
  static F to_floats(Sums x) { return _mm512_cvtepi32_ps(x); }
  /// Lane i: the sum of a[i]'s lanes.
  static F total_each(const Sums (&a)[16]) {
    F lanes[16];
    unroll<16>([&](auto i) { lanes[i] = _mm512_castsi512_ps(a[i]); });
    const F totals = Isa::sum_each_by(lanes, [](F x, F y) {
      return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y)));
    });
    return to_floats(_mm512_castps_si512(totals));
  }

  /// 16 whole numbers x * times, rounded, as high * 2^kBits + low: with kSigned low is the nearest
  /// to zero, otherwise both are unsigned.
  template <int kBits, bool kSigned>
  static void store_digits(F x, F times, void* high, void* low) {
    const __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(x, times));
    const __m512i half = _mm512_set1_epi32(kSigned ? 1 << (kBits - 1) : 0);
    const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(n, half), kBits);
    const __m512i lower = _mm512_sub_epi32(n, _mm512_slli_epi32(upper, kBits));
    _mm_storeu_si128(static_cast<__m128i*>(high), _mm512_cvtepi32_epi8(upper));
    _mm_storeu_si128(static_cast<__m128i*>(low), _mm512_cvtepi32_epi8(lower));
  }

  /// Dims of an interleaved operand: lane 4q + i of operand c is dim 16q + 4c + i of 64.
  /// Half h: operands 2h and 2h + 1, each lane the four rows' bytes of one dim.
  template <int kHalf>
  static void interleave_fours(const Fours (&rows)[4], Fours (&out)[2]) {
    Fours pair[2];
    unroll<2>([&](auto i) {
      pair[i] = kHalf == 0 ? _mm512_unpacklo_epi8(rows[2 * i], rows[2 * i + 1])
                           : _mm512_unpackhi_epi8(rows[2 * i], rows[2 * i + 1]);
    });
    out[0] = _mm512_unpacklo_epi16(pair[0], pair[1]);
    out[1] = _mm512_unpackhi_epi16(pair[0], pair[1]);
  }
  /// 64 floats in the order of interleaved operands, put in order.
  static void restore_order(float* o) {
    const F a = _mm512_loadu_ps(o);
    const F b = _mm512_loadu_ps(o + 16);
    const F c = _mm512_loadu_ps(o + 32);
    const F d = _mm512_loadu_ps(o + 48);
    // A transposition of 128-bit lanes.
    const F ab_even = _mm512_shuffle_f32x4(a, b, 0x88);
    const F ab_odd = _mm512_shuffle_f32x4(a, b, 0xdd);
    const F cd_even = _mm512_shuffle_f32x4(c, d, 0x88);
    const F cd_odd = _mm512_shuffle_f32x4(c, d, 0xdd);
    _mm512_storeu_ps(o, _mm512_shuffle_f32x4(ab_even, cd_even, 0x88));
    _mm512_storeu_ps(o + 16, _mm512_shuffle_f32x4(ab_odd, cd_odd, 0x88));
    _mm512_storeu_ps(o + 32, _mm512_shuffle_f32x4(ab_even, cd_even, 0xdd));
    _mm512_storeu_ps(o + 48, _mm512_shuffle_f32x4(ab_odd, cd_odd, 0xdd));
  }
};

}  // namespace attune::kernels::simd
