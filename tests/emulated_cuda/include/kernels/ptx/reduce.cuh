#pragma once

#include <algorithm>

namespace attune::kernels::ptx {

inline unsigned warp_max(unsigned x) {
  for (int step = 1; step < 32; step *= 2)
    x = std::max(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

}  // namespace attune::kernels::ptx
