#include "kernels/quant_matmul/table.hpp"

#include <attune/status.hpp>

namespace attune::kernels::quant_matmul {

const KernelRow& find(const KernelSet& set, const Layout& layout) {
  for (std::size_t i = 0; i < kNumLayouts; ++i) {
    Layout candidate = set.rows[i].layout;
    candidate.zero = layout.zero;
    if (candidate == layout) return set.rows[i];
  }
  require(false, "a kernel for every layout");
  return set.rows[0];
}

}  // namespace attune::kernels::quant_matmul
