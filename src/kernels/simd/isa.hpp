// Levels of CPU kernels, as attune::CpuIsa numbers them; each includes the ones before (layer
// kernels).
#pragma once

#include <cstdint>

namespace attune::kernels::simd {

enum class Isa : std::uint8_t { scalar, avx2, avx512, avx512_bf16, amx };

}  // namespace attune::kernels::simd
