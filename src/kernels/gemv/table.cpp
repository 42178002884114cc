#include "kernels/gemv/table.hpp"

#include <attune/status.hpp>

namespace attune::kernels::gemv {

const KernelRow& find(simd::Isa isa, DType type) {
  for (const KernelRow* rows : {kAvx512Rows, kAvx2Rows, kScalarRows})
    for (std::size_t i = 0; i < kNumTypes; ++i)
      if (rows[i].isa <= isa && rows[i].weights == type) return rows[i];
  require(false, "gemv takes fp32, bf16 and fp16");
  return kScalarRows[0];
}

}  // namespace attune::kernels::gemv
