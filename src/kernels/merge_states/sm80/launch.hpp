// Joining the states of rows on a GPU (layer kernels): a token's own keys and the levels of its
// shared prefixes, by lse. The host's side.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune::kernels::merge_states::sm80 {

struct Params {
  const float* state_o = nullptr;       ///< [state rows, num_heads, head_dim], normalised
  const float* state_lse = nullptr;     ///< [state rows, num_heads], natural log
  const std::int32_t* first = nullptr;  ///< [num_tokens + 1], of rows
  const std::int32_t* rows = nullptr;   ///< state rows of each token, one at least
  std::int64_t num_tokens = 0;
  std::int32_t num_heads = 1;
  std::int32_t heads_per_kv_head = 1;
  std::int32_t head_dim = 0;  ///< a multiple of 4, up to 256

  DType o_dtype = DType::bf16;
  void* o = nullptr;  ///< [num_tokens, num_heads, head_dim]
  std::int64_t o_token_stride = 0;
  std::int64_t o_head_stride = 0;
  float* lse = nullptr;  ///< [num_tokens, num_heads] or nullptr
  std::int64_t lse_token_stride = 0;
  std::int64_t lse_head_stride = 0;

  std::int32_t* counter = nullptr;  ///< set to zero: of the kernel before, or nullptr

  float v_scale = 1.0f;
  const float* v_scale_per_head = nullptr;  ///< [KV heads], on top of v_scale
  const float* sinks = nullptr;             ///< [num_heads]
};

/// `overlap`: the blocks may settle in while the kernel before them ends (sm_90 and newer).
[[nodiscard]] Status launch(const Params& params, bool overlap, cudaStream_t stream);

}  // namespace attune::kernels::merge_states::sm80
