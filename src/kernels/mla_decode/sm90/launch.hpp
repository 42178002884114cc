// The host's side of the Hopper latent kernels (layer kernels).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "kernels/mla_decode/sm90/params.hpp"
#include "kernels/tensor_map/tensor_map.hpp"

namespace attune::kernels::mla_decode::sm90 {

/// One compiled pair of kernels.
struct Instance {
  DType dtype = DType::bf16;
  const void* decode = nullptr;
  const void* merge = nullptr;
};

/// nullptr where there is none.
[[nodiscard]] const Instance* find(DType dtype);

/// Once per instance and device: raises the shared-memory limit.
[[nodiscard]] Status prepare(const Instance& instance);

/// Strides count elements.
struct Operands {
  const void* q = nullptr;
  std::int64_t q_tokens = 0;
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  const void* k = nullptr;  ///< [num_pages, 64, 576]
  std::int64_t num_pages = 0;
  std::int64_t k_page_stride = 0;
  std::int64_t k_token_stride = 0;
};

struct Grid {
  int blocks = 0;        ///< groups * lanes
  int merge_blocks = 0;  ///< as many as fit: they share what is to merge
};

/// Both kernels, the second starting while the first ends. Nothing waits, nothing is allocated.
[[nodiscard]] Status launch(const Instance& instance, tensor_map::Encoder encoder, Grid grid,
                            const Operands& operands, const Params& params, cudaStream_t stream);

}  // namespace attune::kernels::mla_decode::sm90
