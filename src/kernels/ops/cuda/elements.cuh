// Elements of any activation dtype on a GPU, and sums over a block (layer kernels).
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/ops/cuda/rows.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::ops::cuda {

__device__ inline float read(const void* data, DType dtype, std::int64_t at) {
  if (dtype == DType::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  if (dtype == DType::f16) return __half2float(static_cast<const __half*>(data)[at]);
  return static_cast<const float*>(data)[at];
}

__device__ inline void write(void* data, DType dtype, std::int64_t at, float value) {
  if (dtype == DType::bf16) {
    static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16(value);
  } else if (dtype == DType::f16) {
    static_cast<__half*>(data)[at] = __float2half(value);
  } else {
    static_cast<float*>(data)[at] = value;
  }
}

__device__ inline std::int64_t row_begin(const Rows& rows, std::int64_t row) {
  return row / rows.heads * rows.token_stride + row % rows.heads * rows.head_stride;
}

__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

__device__ inline float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

/// Of every thread's x; kThreads is the block's size, a multiple of 32. All threads get the result.
template <int kThreads, bool kMax>
__device__ inline float block_reduce(float x) {
  __shared__ float parts[kThreads / 32];
  x = kMax ? warp_max(x) : warp_sum(x);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float total = parts[0];
  for (int i = 1; i < kThreads / 32; ++i) total = kMax ? fmaxf(total, parts[i]) : total + parts[i];
  __syncthreads();
  return total;
}

__device__ inline float activated(RowActivation kind, float x, float alpha) {
  constexpr float kSqrtHalf = 0.70710678118654752f;
  constexpr float kSqrtTwoOverPi = 0.79788456080286536f;
  switch (kind) {
    case RowActivation::silu: return x / (1.0f + expf(-x));
    case RowActivation::gelu: return 0.5f * x * (1.0f + erff(x * kSqrtHalf));
    case RowActivation::gelu_tanh:
      return 0.5f * x * (1.0f + tanhf(kSqrtTwoOverPi * (x + 0.044715f * x * x * x)));
    case RowActivation::relu: return fmaxf(x, 0.0f);
    case RowActivation::relu2: return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
    case RowActivation::swiglu_oai: return x / (1.0f + expf(-alpha * x));
  }
  return x;
}

__device__ inline float gated(const Gated& g, float gate, float up) {
  if (g.limit > 0.0f) {
    gate = fminf(gate, g.limit);
    up = fminf(fmaxf(up, -g.limit), g.limit);
  }
  if (g.kind == RowActivation::swiglu_oai) up += 1.0f;
  return activated(g.kind, gate, g.alpha) * up;
}

}  // namespace attune::kernels::ops::cuda
