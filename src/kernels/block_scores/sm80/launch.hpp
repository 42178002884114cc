// Scores of blocks of keys on a GPU (layer kernels): some query tokens against the blocks each sees.
//
//   scores[token, head, block] = the largest q[token, head] . key[s] of keys s of the block that the
//                                token sees; -infinity where all of them are NaN
//
// Neighbouring tokens of a request meet its keys together, as Groups; thread blocks take Shares of
// the groups' blocks, an equal number each (kernels/index_scores/sm90/launch.hpp has both, a tile of
// which is a block here).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "base/fast_divisor.hpp"
#include "kernels/index_scores/sm90/launch.hpp"

namespace attune::kernels::block_scores::sm80 {

using index_scores::sm90::Group;
using index_scores::sm90::Share;

inline constexpr int kMostColumns = 64;  ///< (token, head) pairs of a group
inline constexpr int kMostDim = 128;
inline constexpr int kBlocksPerSm = 4;  ///< that run at the same time

/// Queries and keys of one 16-bit type. Strides count elements.
struct Params {
  const void* q = nullptr;  ///< [tokens, num_heads, head_dim]
  std::int64_t q_token_stride = 0;
  std::int64_t q_head_stride = 0;
  const void* keys = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  base::FastDivisor page;  ///< tokens of a page
  const std::int32_t* kv_indices = nullptr;
  const std::int32_t* visible = nullptr;  ///< by token: it sees keys below this

  float* scores = nullptr;  ///< [tokens of a launch, num_heads, stride], of tokens first_token …
  std::int64_t stride = 0;
  std::int32_t first_token = 0;
  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 0;

  const Group* groups = nullptr;
  const Share* shares = nullptr;  ///< one a thread block
};

/// One compiled kernel. `columns`: (token, head) pairs of a group at most.
struct Instance {
  DType dtype = DType::bf16;
  int columns = 0;
  bool aligned = false;  ///< rows of queries and keys are pieces of 16 bytes
  const void* kernel = nullptr;
};

[[nodiscard]] constexpr bool serves(int num_heads, int head_dim) {
  return num_heads <= kMostColumns && head_dim <= kMostDim;
}

/// Of bf16 or fp16, for requests of `tokens` tokens.
[[nodiscard]] Instance instance_of(DType dtype, int num_heads, int head_dim, std::int64_t tokens);

/// `blocks`: those that shares were made for.
[[nodiscard]] Status launch(const Instance& instance, const Params& params, int blocks,
                            cudaStream_t stream);

}  // namespace attune::kernels::block_scores::sm80
