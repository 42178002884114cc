// The work of a prefill batch as tiles of query rows, longest first (layer plan).
//
// A persistent kernel takes tiles from the front of the list. Longest first, so that the last tiles
// to be handed out are short and all multiprocessors end together. Within that order heads come in
// groups whose keys and values fit the second-level cache, so that tiles that run at the same time
// read the same keys. All heads have the same tiles: the list holds one head's, and the kernel
// finds the head from an item's number.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/batch.hpp>

#include "attention/prefill_list.hpp"

namespace attune::plan {

using attention::PrefillTile;

struct PrefillRules {
  std::int32_t tile_tokens = 128;  ///< query tokens a tile
  std::int32_t tile_heads = 1;     ///< query heads a tile; divides the heads of a KV head
  std::int32_t key_tile = 128;
  std::int32_t num_qo_heads = 1;
  std::int32_t num_kv_heads = 1;
  bool decodes_too = true;  ///< take requests of one query token as well
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;      ///< 0 = causal
  std::int64_t bytes_per_key = 0;      ///< of K and V, one head
  std::int64_t cache_bytes = 1 << 24;  ///< K and V of the heads worked on together stay below this
};

/// How many tiles one head of a batch of at most `tokens` query tokens in at most `batch` requests
/// can have.
[[nodiscard]] std::int64_t max_prefill_tiles(const PrefillRules& rules, std::int64_t batch,
                                             std::int64_t tokens);

/// What one head of a batch costs a kernel.
struct PrefillCount {
  std::int64_t tiles = 0;      ///< of query rows
  std::int64_t key_tiles = 0;  ///< of all of them together
  std::int64_t longest = 0;    ///< key tiles of the longest
  std::int64_t shortest = 0;   ///< no tile has fewer key tiles
};
/// In a time that does not grow with the requests' lengths.
[[nodiscard]] PrefillCount count_prefill(const PrefillRules& rules, const BatchView& batch);

/// The list. Items are started in this order: for each group of heads, for each tile, each head of
/// the group.
struct PrefillSchedule {
  std::vector<PrefillTile> tiles;    ///< of one head, longest first
  std::int32_t heads = 1;            ///< tiles of heads side by side
  std::int32_t heads_together = 1;   ///< of them a group; the last group may have fewer
  std::vector<std::int32_t> starts;  ///< scratch: where tiles of a length begin

  [[nodiscard]] std::int64_t num_items() const {
    return static_cast<std::int64_t>(tiles.size()) * heads;
  }
};

/// Reuses the schedule's memory.
void schedule_prefill(const PrefillRules& rules, const BatchView& batch, PrefillSchedule& schedule);

}  // namespace attune::plan
