#include "kernels/block_scores/body.hpp"
#include "kernels/block_scores/table.hpp"
#include "kernels/simd/scalar.hpp"

namespace attune::kernels::block_scores {

constinit const KernelRow kScalarRows[kNumTypes] = {
    {"block_scores/scalar/fp32", simd::Isa::scalar, DType::f32, simd::Scalar::kLanes,
     Body<simd::Scalar, DType::f32>::run},
    {"block_scores/scalar/bf16", simd::Isa::scalar, DType::bf16, simd::Scalar::kLanes,
     Body<simd::Scalar, DType::bf16>::run},
    {"block_scores/scalar/fp16", simd::Isa::scalar, DType::f16, simd::Scalar::kLanes,
     Body<simd::Scalar, DType::f16>::run},
};

}  // namespace attune::kernels::block_scores
