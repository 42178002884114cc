#include "kernels/simd/scalar.hpp"
#include "kernels/linear/body.hpp"
#include "kernels/linear/convolution_body.hpp"
#include "kernels/linear/table.hpp"

namespace attune::kernels::linear {

const Kernel kScalarKernel{
    .isa = Isa::scalar,
    .run = Body<dense::FmaUnit<simd::Scalar>>::run,
    .scratch_floats = Body<dense::FmaUnit<simd::Scalar>>::scratch_floats,
    .convolve = ConvolutionBody<simd::Scalar>::run,
    .convolution_floats = ConvolutionBody<simd::Scalar>::scratch_floats,
};

}  // namespace attune::kernels::linear
