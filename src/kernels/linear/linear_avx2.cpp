#include "kernels/linear/body.hpp"
#include "kernels/linear/convolution_body.hpp"
#include "kernels/linear/table.hpp"
#include "kernels/simd/avx2.hpp"

namespace attune::kernels::linear {

const Kernel kAvx2Kernel{
    .isa = Isa::avx2,
    .run = Body<dense::FmaUnit<simd::Avx2>>::run,
    .scratch_floats = Body<dense::FmaUnit<simd::Avx2>>::scratch_floats,
    .convolve = ConvolutionBody<simd::Avx2>::run,
    .convolution_floats = ConvolutionBody<simd::Avx2>::scratch_floats,
};

}  // namespace attune::kernels::linear
