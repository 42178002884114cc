// kernels/ptx/widen.cuh in plain C++.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/ptx/mma.cuh"

namespace attune::kernels::ptx {

inline void widen_e4m3(std::uint32_t four, std::uint32_t scale, std::uint32_t& first,
                       std::uint32_t& second) {
  const auto half = [](std::uint32_t bits) {
    return emulated::widened(static_cast<std::uint16_t>(bits), emulated::Element::f16);
  };
  const auto value = [&](int i) {
    return half(widen_fp8<__nv_fp8_e4m3>(four >> 8 * i)) * half(scale >> 16 * (i % 2));
  };
  first = pack_pair<__half>(value(0), value(1));
  second = pack_pair<__half>(value(2), value(3));
}

inline std::uint32_t f16_of_bf16(std::uint32_t pair) {
  const auto value = [&](int i) {
    return emulated::widened(static_cast<std::uint16_t>(pair >> 16 * i), emulated::Element::bf16);
  };
  return pack_pair<__half>(value(0), value(1));
}

}  // namespace attune::kernels::ptx
