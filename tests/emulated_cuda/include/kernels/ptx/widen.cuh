// kernels/ptx/widen.cuh in plain C++.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/ptx/mma.cuh"

namespace attune::kernels::ptx {

template <class Element>
void widen_e4m3(std::uint32_t four, float scale, std::uint32_t& first, std::uint32_t& second) {
  const auto value = [&](int i) {
    return scale * fragments::element<__half>(widen_fp8<__nv_fp8_e4m3>(four >> 8 * i), 0);
  };
  first = pack_pair<Element>(value(0), value(1));
  second = pack_pair<Element>(value(2), value(3));
}

}  // namespace attune::kernels::ptx
