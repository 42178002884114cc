#include "kernels/ops/rows_body.hpp"
#include "kernels/simd/avx512.hpp"

namespace attune::kernels::ops {

constinit const RowKernels kAvx512Rows = RowBody<simd::Avx512>::table("avx512");

}  // namespace attune::kernels::ops
