#include "kernels/gemv/body.hpp"
#include "kernels/gemv/table.hpp"
#include "kernels/simd/avx512.hpp"

namespace attune::kernels::gemv {

constinit const KernelRow kAvx512Rows[kNumTypes] = {
    {"gemv/avx512/fp32", simd::Isa::avx512, DType::f32, Body<simd::Avx512, DType::f32>::multiply},
    {"gemv/avx512/bf16", simd::Isa::avx512, DType::bf16, Body<simd::Avx512, DType::bf16>::multiply},
    {"gemv/avx512/fp16", simd::Isa::avx512, DType::f16, Body<simd::Avx512, DType::f16>::multiply},
};

}  // namespace attune::kernels::gemv
