// Which thread block scores what: tokens of a request that are scored together, and each block's
// share of their key tiles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/index_scores/sm90/launch.hpp"

namespace attune::backends::shared::cuda {

struct ScoreRules {
  std::int64_t topk = 0;  ///< tokens that see no more are not scored: nothing is left out
  std::int64_t rows = 1;  ///< tokens of a launch: a row of scores each
  std::int32_t tokens_per_group = 1;
  std::int32_t blocks = 1;  ///< of a launch
  std::int32_t keys_of_tile = kernels::index_scores::sm90::kKeys;
};

/// Launch n scores tokens n * rows … by shares n * blocks …
struct ScoreList {
  std::vector<kernels::index_scores::sm90::Group> groups;
  std::vector<kernels::index_scores::sm90::Share> shares;
};

/// Of every query token: it sees keys below `visible`, and its request's entries of the page table
/// begin at `entry_begin`. Neighbours of equal entry_begin are of one request.
void list_scores(std::span<const std::int32_t> visible, std::span<const std::int32_t> entry_begin,
                 const ScoreRules& rules, ScoreList& list);

}  // namespace attune::backends::shared::cuda
