// Scores of blocks of keys (layer kernels): query heads of one token, each against the same keys.
//
//   scores[h, b] = the largest q[h] . key[s] of keys s = b * block_size … below the next block and
//                  below num_keys; -infinity where all of them are NaN
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

#include "base/math.hpp"

namespace attune::kernels::block_scores {

struct Params {
  const void* q = nullptr;  ///< [num_heads, head_dim]: fp32, bf16 or fp16
  DType q_dtype = DType::f32;
  std::int64_t q_head_stride = 0;  ///< in elements, as all strides
  int num_heads = 0;
  int head_dim = 0;

  const void* keys = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int32_t page_size = 1;
  const std::int32_t* pages = nullptr;  ///< of the request; nullptr: its keys follow each other
  std::int64_t num_keys = 0;            ///< that the token sees
  std::int64_t block_size = 0;

  float* scores = nullptr;
  std::int64_t score_stride = 0;  ///< from a head's scores to the next head's
};

/// Floats of a thread's own memory, for vectors of `lanes`: the queries, in whole vectors and whole
/// groups of heads.
[[nodiscard]] constexpr std::int64_t scratch_floats(int num_heads, int head_dim, int lanes) {
  constexpr int kMostHeads = 4;
  return base::round_up<std::int64_t>(num_heads, kMostHeads) *
         base::round_up<std::int64_t>(head_dim, lanes);
}

}  // namespace attune::kernels::block_scores
