// Scores of an indexer on a GPU (layer kernels): some query tokens against the keys each sees.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune::kernels::index_scores::sm80 {

/// Queries and keys of one 16-bit type. Strides count elements.
struct Params {
  const void* q = nullptr;  ///< [tokens, num_heads, head_dim]
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  const float* weights = nullptr;  ///< [tokens, num_heads]
  std::int64_t weights_stride = 0;

  const void* keys = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int32_t page_size = 1;
  const std::int32_t* kv_indices = nullptr;
  const std::int32_t* entry_begin = nullptr;  ///< by token: its request's first entry
  const std::int32_t* visible = nullptr;      ///< by token: it sees keys below this

  float* scores = nullptr;  ///< [num_tokens, scores_stride], of tokens first_token …
  std::int64_t scores_stride = 0;
  std::int32_t first_token = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t topk = 0;  ///< tokens that see no more are passed over: nothing is left out
};

/// Shared memory of a block; more than kMostShared is refused.
[[nodiscard]] int shared_bytes(int num_heads, int head_dim);
inline constexpr int kMostShared = 48 * 1024;

/// `blocks`: for each token, sharing its keys.
[[nodiscard]] Status launch(DType dtype, const Params& params, int blocks, cudaStream_t stream);

}  // namespace attune::kernels::index_scores::sm80
