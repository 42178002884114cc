// How prefill work is cut on a GPU, as planner and kernel share it (layer attention; a kernel may
// include it). Items' rows are (query token, query head of one KV head), token-major: a GQA group's
// heads share their keys in one block of rows. Hopper's kernels take tiles instead.
#pragma once

#include <cstdint>

namespace attune::attention {

/// One block of rows against a range of keys, of one request or of several that share those keys;
/// every KV head does it once.
struct PrefillItem {
  std::int32_t q_row = 0;  ///< of the request's first query token
  std::int32_t qo_len = 0;
  std::int32_t kv_len = 0;
  std::int32_t entry_begin = 0;  ///< its first entry in kv_indices (ragged: its first token)
  std::int32_t row_begin = 0;    ///< the block's first row
  std::int32_t kv_begin = 0;     ///< keys of this item: no row sees one outside of them
  std::int32_t kv_end = 0;
  std::int32_t part = 0;  ///< which part of the block's keys this is
  std::int32_t parts = 1;
  std::int32_t first_place =
      0;  ///< part i of KV head h is kept at place (first_place + i) * heads + h
  std::int64_t first_position = 0;  ///< of the page table's first key
  std::int64_t mask_begin = -1;     ///< its mask: first byte of bits, or first of blocks; -1 = none
  std::int32_t o_row = 0;           ///< of o and lse for the row q_row
  std::int32_t shared = 0;  ///< 1: rows of several requests; what each token sees is its TokenRule
};
static_assert(sizeof(PrefillItem) == 64, "four vector loads");

/// What the query of one token sees, in keys counted from its page table's first.
struct TokenRule {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t position = 0;
  float temperature = 1.0f;  ///< factor of the logits (AttentionSpec::xai_temperature_len)
};
static_assert(sizeof(TokenRule) == 16, "one vector load");

/// In front of the items.
struct PrefillWork {
  std::int32_t num_items = 0;
  std::int32_t reserved[7] = {0, 0, 0, 0, 0, 0, 0};
};

/// One tile of query rows of one head, or of neighbouring heads, against one request's keys.
/// Positions and lengths count from the request's first key.
struct PrefillTile {
  std::int32_t q_token = 0;     ///< first row of q and o
  std::int32_t q_tokens = 0;    ///< tokens from there to the request's end (may exceed the tile)
  std::int32_t q_position = 0;  ///< of the first token; negative where qo_len > kv_len
  std::int32_t head = 0;        ///< first query head, before what the item's number adds
  std::int32_t kv_start = 0;    ///< ragged: first row of k and v; paged: first entry in kv_indices
  std::int32_t kv_len = 0;
  std::int32_t tile_begin = 0;  ///< key tiles [tile_begin, tile_end), at least one
  std::int32_t tile_end = 0;
  /// Levels of shared prefixes: first row of o and lse. Kept blocks: the tile's first KeptTile, as
  /// the thread block that takes it finds out (kernels/ragged_prefill/sm90).
  std::int32_t o_token = 0;
};
static_assert(sizeof(PrefillTile) == 36);

}  // namespace attune::attention
