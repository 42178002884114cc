// minimax_sparse on a GPU, planned: query tokens are requests of their own to the decode kernel, over
// as many keys as their lists have room for; those of prompts are tiles, where there are kernels for
// them. A batch of prompts that leave nothing out is planned as plain attention beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "backends/minimax_sparse/cuda/selection.hpp"
#include "backends/minimax_sparse/cuda/tiles.hpp"
#include "backends/shared/cuda/paged_planner.hpp"

namespace attune::backends::minimax_sparse {

struct BlockPlan final : Plan {
  attention::BatchFacts facts;
  Selection selection;
  Tiles tiles;
  shared::paged::PagedPlan lists;  ///< of tokens that are no tiles, over what they keep
  bool decodes = false;            ///< there are such tokens
  PlanHandle dense;                ///< where prompts leave nothing out …
  bool keeps_all = false;          ///< … as the plan's first batch does
  // Tokens as requests.
  std::vector<std::int32_t> token_indptr, key_indptr;
};

/// Bounds of tokens as requests.
[[nodiscard]] BatchBounds list_bounds(const BatchBounds& bounds);

/// Tokens of a batch, whose selection was listed, as requests of one query. Those of a request whose
/// tokens are tiles stay together, which decodes pass over. The view is of the plan's own arrays.
[[nodiscard]] BatchView list_batch(const AttentionSpec& spec, const BatchView& batch,
                                   BlockPlan& plan);

}  // namespace attune::backends::minimax_sparse
