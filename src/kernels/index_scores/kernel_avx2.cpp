#include "kernels/index_scores/body.hpp"
#include "kernels/index_scores/table.hpp"
#include "kernels/simd/avx2.hpp"

namespace attune::kernels::index_scores {

constinit const KernelRow kAvx2Rows[kNumTypes] = {
    {"index_scores/avx2/fp32", simd::Isa::avx2, DType::f32, simd::Avx2::kLanes,
     Body<simd::Avx2, DType::f32>::run},
    {"index_scores/avx2/bf16", simd::Isa::avx2, DType::bf16, simd::Avx2::kLanes,
     Body<simd::Avx2, DType::bf16>::run},
    {"index_scores/avx2/fp16", simd::Isa::avx2, DType::f16, simd::Avx2::kLanes,
     Body<simd::Avx2, DType::f16>::run},
};

}  // namespace attune::kernels::index_scores
