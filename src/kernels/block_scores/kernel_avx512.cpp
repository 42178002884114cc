#include "kernels/block_scores/body.hpp"
#include "kernels/block_scores/table.hpp"
#include "kernels/simd/avx512.hpp"

namespace attune::kernels::block_scores {

constinit const KernelRow kAvx512Rows[kNumTypes] = {
    {"block_scores/avx512/fp32", simd::Isa::avx512, DType::f32, simd::Avx512::kLanes,
     Body<simd::Avx512, DType::f32>::run},
    {"block_scores/avx512/bf16", simd::Isa::avx512, DType::bf16, simd::Avx512::kLanes,
     Body<simd::Avx512, DType::bf16>::run},
    {"block_scores/avx512/fp16", simd::Isa::avx512, DType::f16, simd::Avx512::kLanes,
     Body<simd::Avx512, DType::f16>::run},
};

}  // namespace attune::kernels::block_scores
