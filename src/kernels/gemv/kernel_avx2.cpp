#include "kernels/gemv/body.hpp"
#include "kernels/gemv/table.hpp"
#include "kernels/simd/avx2.hpp"

namespace attune::kernels::gemv {

constinit const KernelRow kAvx2Rows[kNumTypes] = {
    {"gemv/avx2/fp32", simd::Isa::avx2, DType::f32, Body<simd::Avx2, DType::f32>::multiply},
    {"gemv/avx2/bf16", simd::Isa::avx2, DType::bf16, Body<simd::Avx2, DType::bf16>::multiply},
    {"gemv/avx2/fp16", simd::Isa::avx2, DType::f16, Body<simd::Avx2, DType::f16>::multiply},
};

}  // namespace attune::kernels::gemv
