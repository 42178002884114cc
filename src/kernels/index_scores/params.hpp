// Scores of an indexer (layer kernels): one query token against keys of one request.
//
//   scores[s] = sum_h weights[h] * max(0, q[h] . key[s])
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

#include "base/math.hpp"

namespace attune::kernels::index_scores {

struct Params {
  const void* q = nullptr;  ///< [num_heads, head_dim]: fp32, bf16 or fp16
  DType q_dtype = DType::f32;
  std::int64_t q_head_stride = 0;  ///< in elements, as all strides
  const float* weights = nullptr;  ///< [num_heads]
  int num_heads = 0;
  int head_dim = 0;

  const void* keys = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int32_t page_size = 1;
  const std::int32_t* pages = nullptr;  ///< of the request; nullptr: its keys follow each other
};

/// Keys that are multiplied together.
inline constexpr int kKeys = 4;

/// Floats of a thread's own memory, for vectors of `lanes`.
[[nodiscard]] constexpr std::int64_t scratch_floats(int num_heads, int head_dim, int lanes) {
  const std::int64_t width = base::round_up<std::int64_t>(num_heads, lanes);
  return width * head_dim + width + std::int64_t{kKeys} * head_dim;
}

}  // namespace attune::kernels::index_scores
