#include "kernels/linear/body.hpp"
#include "kernels/linear/table.hpp"
#include "kernels/simd/avx512.hpp"

namespace attune::kernels::linear {

const Kernel kAvx512Kernel{
    .isa = Isa::avx512,
    .run = Body<simd::Avx512>::run,
    .scratch_floats = Body<simd::Avx512>::scratch_floats,
};

}  // namespace attune::kernels::linear
