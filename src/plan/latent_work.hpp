// Work of absorbed latent attention for a GPU (layer plan): which rows share a block, which blocks
// share their keys side by side, and where requests are cut (attention/latent_list.hpp).
// O(batch + groups), no allocation once the vectors have grown.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/batch.hpp>

#include "attention/latent_list.hpp"

namespace attune::plan {

/// What does not change between a plan and its refresh: a captured launch has it in its arguments.
struct LatentShape {
  std::int32_t rows = 64;  ///< of a block
  std::int32_t heads_per_block = 1;
  std::int32_t tokens_per_block = 1;
  std::int32_t head_blocks = 1;
  std::int32_t lanes = 1;  ///< blocks of a strip, thread blocks of a group
};

struct LatentRules {
  std::int32_t num_heads = 1;
  bool causal = true;
  bool meetings = false;         ///< two parts of a strip are joined by the group that is second
  std::int32_t rows = 64;        ///< most of a block
  std::int32_t least_rows = 64;  ///< of the smallest kernel; the next has twice as many …
  std::int32_t tile = 64;        ///< keys
  std::int32_t workers = 1;      ///< thread blocks that run at once
  std::int32_t item_tiles = 3;   ///< what an item costs beside its tiles, in tiles
  std::int32_t least_tiles = 1;  ///< of a part
};

/// Most lanes of a group. Two already halve what is read from memory; with more the groups, which
/// must fit the multiprocessors whole, become coarse.
inline constexpr std::int32_t kMaxLanes = 4;

[[nodiscard]] LatentShape latent_shape(const LatentRules& rules, const BatchView& batch);

[[nodiscard]] constexpr std::int32_t latent_groups(const LatentRules& rules,
                                                   const LatentShape& shape) {
  return rules.workers < shape.lanes ? 1 : rules.workers / shape.lanes;
}

/// Host side of a plan. Reused from plan to plan.
struct LatentList {
  std::vector<attention::LatentItem> items;  ///< group after group
  std::vector<attention::LatentGroup> groups;
  std::vector<attention::LatentMerge> merges;  ///< cut strips, without those of meetings
  std::int32_t places = 0;                     ///< parts to keep, of `lanes` blocks each
  std::int32_t meetings = 0;                   ///< counters, `lanes` each
  std::int32_t most_parts = 0;                 ///< of a merge
};

void list_latent_work(const BatchView& batch, const LatentRules& rules, const LatentShape& shape,
                      LatentList& list);

/// Upper bounds for workspaces, whatever the shape and the lengths: a refresh with longer keys
/// fits.
struct LatentLimits {
  std::int64_t items = 0;
  std::int64_t merges = 0;
  std::int64_t counters = 0;     ///< meetings times lanes
  std::int64_t part_blocks = 0;  ///< places times lanes
};
[[nodiscard]] LatentLimits latent_limits(const LatentRules& rules, std::int64_t max_qo_tokens);

}  // namespace attune::plan
