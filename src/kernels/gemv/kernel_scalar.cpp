#include "kernels/gemv/body.hpp"
#include "kernels/gemv/table.hpp"
#include "kernels/simd/scalar.hpp"

namespace attune::kernels::gemv {

constinit const KernelRow kScalarRows[kNumTypes] = {
    {"gemv/scalar/fp32", simd::Isa::scalar, DType::f32, Body<simd::Scalar, DType::f32>::multiply},
    {"gemv/scalar/bf16", simd::Isa::scalar, DType::bf16, Body<simd::Scalar, DType::bf16>::multiply},
    {"gemv/scalar/fp16", simd::Isa::scalar, DType::f16, Body<simd::Scalar, DType::f16>::multiply},
};

}  // namespace attune::kernels::gemv
