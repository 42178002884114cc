// What the tokens of a tile of query rows keep between them, for the kernels that read a block once
// for all of them (kernels/ragged_prefill/sm90, KvLoad::blocks).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

#include "kernels/ragged_prefill/sm90/params.hpp"

namespace attune::kernels::block_lists::sm80 {

struct TileParams {
  const ragged_prefill::sm90::WorkList* work = nullptr;
  const ragged_prefill::sm90::PrefillTile* items = nullptr;  ///< positions count from the first key
  std::int32_t max_items = 0;                                ///< that a plan may come to list
  std::int32_t tile_tokens = 0;

  const std::int32_t* lists = nullptr;  ///< [tokens, num_heads, topk]: blocks, in any order
  std::int64_t lists_token_stride = 0;
  std::int64_t lists_head_stride = 0;
  std::int32_t num_heads = 0;
  std::int32_t topk = 0;
  std::int32_t block_size = 0;
  std::int32_t max_blocks = 0;  ///< of a request

  ragged_prefill::sm90::KeptTile* kept = nullptr;  ///< [max_items, num_heads, kept_stride]
  std::int32_t* num_kept = nullptr;                ///< [max_items, num_heads]
  std::int32_t kept_stride = 0;
};

/// A bit a token; and the blocks of a request in a thread block's memory.
inline constexpr int kMostTileTokens = 32;
inline constexpr int kMostTileBlocks = 12000;

/// Blocks that some token of the item keeps, ascending, each once; what is no visible block of a
/// token is passed over. An item whose tokens keep nothing gets block 0, kept by none.
[[nodiscard]] Status launch_tiles(const TileParams& params, cudaStream_t stream);

}  // namespace attune::kernels::block_lists::sm80
