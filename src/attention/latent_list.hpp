// How absorbed latent attention is cut on a GPU, as planner and kernel share it (layer attention; a
// kernel may include it).
//
// A request's rows (query token, head) form blocks; `lanes` neighbouring blocks are a strip, which
// a group of as many thread blocks works on side by side, so that they read the same keys at the
// same time. Strips are dealt to groups one after another, each group getting the same cost; where
// a group is full a strip is cut, and its parts meet in the workspace. Two parts may be joined by
// the group that comes second; what is left is joined by a second launch, in order.
#pragma once

#include <cstdint>

namespace attune::attention {

/// One strip against key tiles [tile_begin, tile_end); none where no row sees a key.
struct LatentItem {
  std::int32_t q_token = 0;  ///< the request's first row of q, o and lse
  std::int32_t qo_len = 0;
  std::int32_t kv_len = 0;
  std::int32_t entry_begin = 0;  ///< its first entry in kv_indices
  std::int32_t first_block = 0;  ///< of the strip; lane l works on first_block + l …
  std::int32_t num_blocks = 0;   ///< … if the request has as many
  std::int32_t tile_begin = 0;
  std::int32_t tile_end = 0;
  std::int32_t place = -1;      ///< where the part is kept; -1 = this is the whole strip
  std::int32_t first_page = 0;  ///< kv_indices[entry_begin + tile_begin], where a page is a tile
  /// Of the two parts that share a place, whichever is done first leaves its rows there and the
  /// other joins them: the number of their counters (one a lane). -1 = no such strip.
  std::int32_t meeting = -1;
  std::int32_t last = 0;  ///< 1: of the strip's parts, the one that ends it
};
static_assert(sizeof(LatentItem) == 48, "three vector loads");

/// Items of a group of thread blocks, in the list; with the first, so that a block knows what to
/// do after one trip to memory.
struct LatentGroup {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t reserved[2] = {0, 0};
  LatentItem first;
};
static_assert(sizeof(LatentGroup) == 64, "half a line");

/// A strip to be joined by the second launch: its parts are at places first_place … first_place +
/// parts - 1.
struct LatentMerge {
  std::int32_t q_token = 0;
  std::int32_t qo_len = 0;
  std::int32_t first_block = 0;
  std::int32_t num_blocks = 0;
  std::int32_t first_place = 0;
  std::int32_t parts = 0;
  std::int32_t reserved[2] = {0, 0};
};
static_assert(sizeof(LatentMerge) == 32, "two vector loads");

/// In front of the lists.
struct LatentWork {
  std::int32_t num_items = 0;
  std::int32_t num_merges = 0;
  std::int32_t most_parts = 0;  ///< of a merge
  std::int32_t reserved = 0;
};

}  // namespace attune::attention
