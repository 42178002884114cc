#include "kernels/block_scores/table.hpp"

namespace attune::kernels::block_scores {

const KernelRow* find(simd::Isa isa, DType type) {
  for (const KernelRow* rows : {kAvx512Rows, kAvx2Rows, kScalarRows})
    for (std::size_t i = 0; i < kNumTypes; ++i)
      if (rows[i].isa <= isa && rows[i].keys == type) return rows + i;
  return nullptr;
}

}  // namespace attune::kernels::block_scores
