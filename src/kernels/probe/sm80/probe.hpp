// A card's ceilings: kernels that only read, or only multiply (layer kernels). bench/cuda times
// them. Errors are left for cudaGetLastError, as after any launch.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace attune::kernels::probe::sm80 {

/// Reads `bytes` (a multiple of 16) once, 16 bytes a load, on `num_sms` SMs; `sink` is one float.
void read(const void* from, std::int64_t bytes, float* sink, int num_sms, cudaStream_t stream);

/// Flops of independent bf16 products (mma 16x8x16) on every SM for `rounds` rounds.
double multiply_bf16(std::int64_t rounds, float* sink, int num_sms, cudaStream_t stream);

/// Likewise of fp32 multiply-adds.
double multiply_f32(std::int64_t rounds, float* sink, int num_sms, cudaStream_t stream);

}  // namespace attune::kernels::probe::sm80
