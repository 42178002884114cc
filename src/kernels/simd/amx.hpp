// Amx: the vector verbs of files compiled for AMX (layer kernels).
#pragma once

#include "kernels/simd/avx512_bf16.hpp"

namespace attune::kernels::simd {

struct Amx : Avx512Bf16Verbs<Amx>, Avx512ByteVerbs<Amx> {
  using F = Avx512Bf16Verbs<Amx>::F;
  /// These cores fetch ahead by themselves within a page, so several pages are asked for at once.
  static constexpr int kStreams = 4;

  /// Numbers 0, 2, … 30 of bf16 pairs, and 1, 3, … 31.
  static F even(Pairs x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
  static F odd(Pairs x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  /// 32 floats: those in even places, then those in odd ones; and back.
  static void split_even_odd(float* x) {
    const F a = _mm512_loadu_ps(x);
    const F b = _mm512_loadu_ps(x + kLanes);
    const __m512i kEven =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i kOdd = _mm512_add_epi32(kEven, _mm512_set1_epi32(1));
    _mm512_storeu_ps(x, _mm512_permutex2var_ps(a, kEven, b));
    _mm512_storeu_ps(x + kLanes, _mm512_permutex2var_ps(a, kOdd, b));
  }
  static void join_even_odd(float* x) {
    const F even = _mm512_loadu_ps(x);
    const F odd = _mm512_loadu_ps(x + kLanes);
    const __m512i kLow = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i kHigh = _mm512_add_epi32(kLow, _mm512_set1_epi32(8));
    _mm512_storeu_ps(x, _mm512_permutex2var_ps(even, kLow, odd));
    _mm512_storeu_ps(x + kLanes, _mm512_permutex2var_ps(even, kHigh, odd));
  }

  /// 16 numbers of bf16 as the first of pairs whose other is zero, and as the second.
  static void spread_pairs(const std::uint16_t* from, std::uint16_t* first, std::uint16_t* second) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    _mm512_storeu_si512(first, wide);
    _mm512_storeu_si512(second, _mm512_slli_epi32(wide, 16));
  }

  /// 16 bytes as the first of fours whose others are zero, as the second, third and fourth.
  static void spread_fours(const std::int8_t* from, char* to) {
    __m512i fours = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    unroll<4>([&](auto i) {
      _mm512_storeu_si512(to + i * 64, fours);
      fours = _mm512_slli_epi32(fours, 8);
    });
  }

  /// As many bytes as Pairs holds, as they lie.
  static Pairs load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  /// Lane i: 128 * high[i] + low[i], both 32-bit integers where floats would lie.
  static F join_digits(const float* high, const float* low) {
    const __m512i sum =
        _mm512_add_epi32(_mm512_slli_epi32(_mm512_loadu_si512(high), 7), _mm512_loadu_si512(low));
    return _mm512_cvtepi32_ps(sum);
  }
};

}  // namespace attune::kernels::simd
