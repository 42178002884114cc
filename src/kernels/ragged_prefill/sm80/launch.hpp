// The host's side of the general CUDA prefill kernel (layer kernels).
#pragma once

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "kernels/ragged_prefill/sm80/params.hpp"

namespace attune::kernels::ragged_prefill::sm80 {

/// One compiled kernel.
struct Instance {
  DType kv_dtype = DType::bf16;
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  bool padded = false;  ///< serves smaller head dims too
  bool blocks = false;  ///< for masks by blocks, and for those alone
  int rows = 64;        ///< of a block
  int key_tile = 64;
  int threads = 128;
  int shared_bytes = 0;
  const void* kernel = nullptr;
};

/// One made for just these dims, else the narrowest padded one; of several the first that fits
/// `shared_bytes`, what a block of the card may have. `blocks`: of those alone that take masks by
/// blocks. nullptr: there is none.
[[nodiscard]] const Instance* find(DType kv_dtype, int head_dim_qk, int head_dim_vo,
                                   int shared_bytes, bool blocks);

/// Raises the kernel's shared-memory limit; the answer is how many CTAs a SM holds. Once per
/// backend.
[[nodiscard]] Result<int> prepare(const Instance& instance);

/// Nothing waits, nothing is allocated.
[[nodiscard]] Status launch(const Instance& instance, const Params& params, int grid,
                            cudaStream_t stream);

}  // namespace attune::kernels::ragged_prefill::sm80
