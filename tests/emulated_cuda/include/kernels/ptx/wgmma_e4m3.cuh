// kernels/ptx/wgmma_e4m3.cuh in plain C++.
#pragma once

#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::ptx {

inline void wgmma_e4m3(float (&d)[32], std::uint64_t a, std::uint64_t b, bool accumulate) {
  emulated::WarpgroupProduct mine{.d = d,
                                  .n = 64,
                                  .element = emulated::Element::e4m3_low,
                                  .a = nullptr,
                                  .descriptor_a = a,
                                  .descriptor_b = b,
                                  .accumulate = accumulate};
  emulated::issue_product(mine);
}

}  // namespace attune::kernels::ptx
