// A compressor's windows on a GPU (layer kernels): verbs of model/ops.hpp as launches, all of fp32.
// A launch returns nothing: the caller asks cudaGetLastError once after it.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/ops/windows.hpp"

namespace attune::kernels::ops::cuda {

struct WindowRows {
  const float* projected = nullptr;  ///< [num_tokens, width]
  std::int64_t projected_stride = 0;
  float* rings = nullptr;  ///< [slots, ring, width]
  std::int64_t slot_stride = 0;
  std::int64_t ring_stride = 0;
  std::int64_t ring = 1;
  std::int64_t width = 0;
  const WindowToken* tokens = nullptr;  ///< [num_tokens]
  std::int64_t num_tokens = 0;
};

/// out [num_tokens, pool.dim], rows `out_stride` apart: pooled windows in rows of tokens that end one,
/// zeros in the others.
void pool_windows(const WindowPool& pool, const WindowRows& rows, float* out,
                  std::int64_t out_stride, cudaStream_t stream);

/// The rings pass the step's tokens.
void keep_windows(const WindowRows& rows, cudaStream_t stream);

}  // namespace attune::kernels::ops::cuda
