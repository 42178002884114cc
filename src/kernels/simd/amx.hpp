// Amx: the vector verbs of files compiled for AMX (layer kernels).
#pragma once

#include "kernels/simd/avx512_bf16.hpp"

namespace attune::kernels::simd {

struct Amx : Avx512Bf16Verbs<Amx> {};

}  // namespace attune::kernels::simd
