// The shipped kernels of block scores (layer kernels).
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/block_scores/params.hpp"
#include "kernels/simd/isa.hpp"

namespace attune::kernels::block_scores {

struct KernelRow {
  const char* name;
  simd::Isa isa;
  DType keys;
  int lanes;
  /// Scores of blocks [first, last), of every head.
  void (*run)(const Params& params, std::int64_t first, std::int64_t last, float* scratch);
};

inline constexpr std::size_t kNumTypes = 3;  // fp32, bf16, fp16
extern const KernelRow kScalarRows[kNumTypes];
extern const KernelRow kAvx2Rows[kNumTypes];
extern const KernelRow kAvx512Rows[kNumTypes];

/// The best row for stored keys of `type` that a CPU of level `isa` can run; nullptr for other
/// types.
[[nodiscard]] const KernelRow* find(simd::Isa isa, DType type);

}  // namespace attune::kernels::block_scores
