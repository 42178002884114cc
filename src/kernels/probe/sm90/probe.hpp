// Hopper's own ceiling: warpgroup products out of shared memory (layer kernels).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace attune::kernels::probe::sm90 {

/// Flops of bf16 products (wgmma 64x256x16, random operands) on every SM for `rounds` rounds. First
/// raises the kernel's limit of shared memory. Errors are left for cudaGetLastError.
double multiply_bf16(std::int64_t rounds, float* sink, int num_sms, cudaStream_t stream);

}  // namespace attune::kernels::probe::sm90
