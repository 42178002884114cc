#include "kernels/index_scores/body.hpp"
#include "kernels/index_scores/table.hpp"
#include "kernels/simd/avx512.hpp"

namespace attune::kernels::index_scores {

constinit const KernelRow kAvx512Rows[kNumTypes] = {
    {"index_scores/avx512/fp32", simd::Isa::avx512, DType::f32, simd::Avx512::kLanes,
     Body<simd::Avx512, DType::f32>::run},
    {"index_scores/avx512/bf16", simd::Isa::avx512, DType::bf16, simd::Avx512::kLanes,
     Body<simd::Avx512, DType::bf16>::run},
    {"index_scores/avx512/fp16", simd::Isa::avx512, DType::f16, simd::Avx512::kLanes,
     Body<simd::Avx512, DType::f16>::run},
};

}  // namespace attune::kernels::index_scores
