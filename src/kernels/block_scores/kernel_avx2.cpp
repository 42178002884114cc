#include "kernels/block_scores/body.hpp"
#include "kernels/block_scores/table.hpp"
#include "kernels/simd/avx2.hpp"

namespace attune::kernels::block_scores {

constinit const KernelRow kAvx2Rows[kNumTypes] = {
    {"block_scores/avx2/fp32", simd::Isa::avx2, DType::f32, simd::Avx2::kLanes,
     Body<simd::Avx2, DType::f32>::run},
    {"block_scores/avx2/bf16", simd::Isa::avx2, DType::bf16, simd::Avx2::kLanes,
     Body<simd::Avx2, DType::bf16>::run},
    {"block_scores/avx2/fp16", simd::Isa::avx2, DType::f16, simd::Avx2::kLanes,
     Body<simd::Avx2, DType::f16>::run},
};

}  // namespace attune::kernels::block_scores
