// Which blocks of keys a query keeps for each of its KV heads, on a GPU (layer kernels): chosen from
// scores, or read; and where their keys lie, as pages of as many keys as blocks and pages of the
// cache are both made of.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

#include "base/fast_divisor.hpp"

namespace attune::kernels::block_lists::sm80 {

struct Params {
  const float* scores = nullptr;  ///< [num_tokens, num_heads, scores_stride], of first_token …
  std::int64_t scores_stride = 0;
  std::int32_t* lists = nullptr;  ///< [tokens, num_heads, topk]: blocks
  std::int64_t lists_token_stride = 0;
  std::int64_t lists_head_stride = 0;

  const std::int32_t* kv_indices = nullptr;
  const std::int32_t* entry_begin = nullptr;  ///< by token: its request's first entry
  const std::int32_t* visible = nullptr;      ///< by token: it sees keys below this
  base::FastDivisor page;                     ///< tokens of a page of the cache
  base::FastDivisor part;                     ///< keys of a page of ours, which divides both …
  std::int32_t parts_of_page = 1;  ///< … page ids of the cache lie so many of ours apart

  std::int32_t* pages = nullptr;  ///< [tokens, num_heads, pages_stride], without gaps
  std::int64_t pages_stride = 0;  ///< topk * (block_size / part)
  std::int32_t* kept = nullptr;   ///< [tokens, num_heads]: keys in them

  std::int32_t first_token = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_heads = 0;
  std::int32_t block_size = 0;
  std::int32_t topk = 0;
  std::int32_t init_blocks = 0;   ///< the first, always kept
  std::int32_t local_blocks = 0;  ///< the last, likewise

  std::int32_t picks = 0;  ///< launch_choose sets it: room for those of all runs of a list's blocks
};

/// Longer lists do not fit a thread block's memory.
inline constexpr int kMostTopk = 4000;

/// Writes lists, pages and counts: blocks that are always kept and those of largest score between
/// them, ascending, of equals the later ones, a NaN as -infinity; all where they are as few (their
/// scores are not read). No token sees more than scores_stride blocks.
[[nodiscard]] Status launch_choose(Params params, cudaStream_t stream);

/// Lists as they are given: pages and counts of what is a visible block, each once, ascending.
[[nodiscard]] Status launch_read(const Params& params, cudaStream_t stream);

}  // namespace attune::kernels::block_lists::sm80
