#include "kernels/linear/body.hpp"
#include "kernels/linear/convolution_body.hpp"
#include "kernels/linear/table.hpp"
#include "kernels/simd/avx512.hpp"

namespace attune::kernels::linear {

const Kernel kAvx512Kernel{
    .isa = Isa::avx512,
    .run = Body<dense::FmaUnit<simd::Avx512>>::run,
    .scratch_floats = Body<dense::FmaUnit<simd::Avx512>>::scratch_floats,
    .convolve = ConvolutionBody<simd::Avx512>::run,
    .convolution_floats = ConvolutionBody<simd::Avx512>::scratch_floats,
};

}  // namespace attune::kernels::linear
