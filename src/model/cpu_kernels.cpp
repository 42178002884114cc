#include "model/cpu_kernels.hpp"

#include <algorithm>

#include "device/cpu_features.hpp"
#include "kernels/ops/matmul.hpp"

namespace attune::model {

CpuKernels choose_cpu_kernels(CpuIsa cap) {
  const device::CpuFeatures cpu = device::detect_cpu_features();
  const CpuIsa isa = std::min(cap, device::usable_isa(cpu));
  namespace quant = kernels::quant_matmul;
  CpuKernels chosen{.rows = &kernels::ops::kScalarRows,
                    .quant = &quant::kScalarSet,
                    .isa = static_cast<kernels::simd::Isa>(isa),
                    .fast_bf16 = isa >= CpuIsa::avx512 && kernels::ops::Matmul::has_fast_bf16()};
  if (isa >= CpuIsa::avx2) {
    chosen.rows = &kernels::ops::kAvx2Rows;
    chosen.quant = &quant::kAvx2Set;
  }
  if (isa >= CpuIsa::avx512) chosen.rows = &kernels::ops::kAvx512Rows;
  if (isa >= CpuIsa::avx512 && cpu.avx512_vnni) chosen.quant = &quant::kAvx512VnniSet;
  return chosen;
}

}  // namespace attune::model
