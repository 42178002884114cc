// A place in a ring of stages that mbarriers guard (layer kernels).
#pragma once

#include <cstdint>

namespace attune::kernels::linear::sm90 {

template <int Stages>
struct RingPlace {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage < Stages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace attune::kernels::linear::sm90
