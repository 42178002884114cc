// The shipped gemv kernels (layer kernels).
#pragma once

#include <cstddef>

#include <attune/tensor.hpp>

#include "kernels/gemv/params.hpp"
#include "kernels/simd/isa.hpp"

namespace attune::kernels::gemv {

struct KernelRow {
  const char* name;
  simd::Isa isa;
  DType weights;
  void (*multiply)(const Params& params);
};

inline constexpr std::size_t kNumTypes = 3;  // fp32, bf16, fp16
extern const KernelRow kScalarRows[kNumTypes];
extern const KernelRow kAvx2Rows[kNumTypes];
extern const KernelRow kAvx512Rows[kNumTypes];

/// The best row for weights of `type` that a CPU of level `isa` can run.
[[nodiscard]] const KernelRow& find(simd::Isa isa, DType type);

}  // namespace attune::kernels::gemv
