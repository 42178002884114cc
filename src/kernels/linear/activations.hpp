// Reading and writing activations of either dtype, scalar (layer kernels).
#pragma once

#include <cstdint>

#include "tensor/narrow_float.hpp"

namespace attune::kernels::linear {

[[nodiscard]] inline float load(const void* data, bool bf16, std::int64_t index) {
  return bf16 ? tensor::to_float(static_cast<const tensor::Bf16*>(data)[index])
              : static_cast<const float*>(data)[index];
}

inline void store(void* data, bool bf16, std::int64_t index, float value) {
  if (bf16) {
    static_cast<tensor::Bf16*>(data)[index] = tensor::to_bf16(value);
  } else {
    static_cast<float*>(data)[index] = value;
  }
}

}  // namespace attune::kernels::linear
