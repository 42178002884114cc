// The host's side of the gathering latent kernels (layer kernels), and of the merge behind every
// latent kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "kernels/mla_decode/params.hpp"
#include "kernels/mla_decode/sm80/policy.hpp"

namespace attune::kernels::mla_decode::sm80 {

struct Instance {
  DType dtype = DType::bf16;
  int rows = 0;
  int shared_bytes = 0;
  const void* kernel = nullptr;
};

/// Columns of keys and of values: multiples of 8, no more than kDimQk.
struct Dims {
  int qk = kDimQk;
  int vo = kDimVo;
};

/// Of bf16 or fp16, for this many heads in this much shared memory a block.
[[nodiscard]] Instance instance_of(DType dtype, Dims dims, int num_heads,
                                   int shared_bytes_per_block);

/// Once per instance and device: raises the shared-memory limit; the answer is how many blocks run
/// on an SM at once.
[[nodiscard]] Result<int> prepare(const Instance& instance);

/// `overlap`: cards of compute capability 9.0 and newer start a kernel while the one before ends.
/// Nothing waits, nothing is allocated.
[[nodiscard]] Status launch(const Instance& instance, Grid grid, const Params& params, bool overlap,
                            cudaStream_t stream);

/// Joins what any latent kernel left in parts, which are fp32 or (`halves`) HalfParts.
[[nodiscard]] cudaError_t start_merge(DType dtype, int blocks, const Params& params, bool halves,
                                      bool overlap, cudaStream_t stream);

}  // namespace attune::kernels::mla_decode::sm80
