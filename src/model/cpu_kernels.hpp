// Which kernels this CPU runs, decided once (layer model).
#pragma once

#include <attune/device.hpp>

#include "kernels/gemv/table.hpp"
#include "kernels/ops/rows.hpp"
#include "kernels/quant_matmul/table.hpp"
#include "kernels/simd/isa.hpp"

namespace attune::model {

struct CpuKernels {
  const kernels::ops::RowKernels* rows = nullptr;
  const kernels::quant_matmul::KernelSet* quant = nullptr;
  kernels::simd::Isa isa = kernels::simd::Isa::scalar;
  bool fast_bf16 = false;  ///< the library's bf16 product beats its fp32 one
};

/// The best of level `cap` and below that the CPU has.
[[nodiscard]] CpuKernels choose_cpu_kernels(CpuIsa cap);

}  // namespace attune::model
