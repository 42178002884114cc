#include "kernels/ops/rows_body.hpp"
#include "kernels/simd/avx2.hpp"

namespace attune::kernels::ops {

constinit const RowKernels kAvx2Rows = RowBody<simd::Avx2>::table("avx2");

}  // namespace attune::kernels::ops
