// Amx: the vector verbs of files compiled for AMX (layer kernels).
#pragma once

#include "kernels/simd/avx512_bf16.hpp"

namespace attune::kernels::simd {

struct Amx : Avx512Bf16Verbs<Amx> {
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
