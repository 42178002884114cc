// Which blocks of keys a query keeps for each of its KV heads, on CPUs, and where these lie
// (docs/decisions/0013-block-sparse.md). A selection (cpu_selection.hpp) whose lists, one for each
// KV head of each token, name blocks, and whose slots are small pages.
#pragma once

#include <cstdint>

#include <attune/device.hpp>
#include <attune/sparse_call.hpp>
#include <attune/spec.hpp>

#include "backends/shared/cpu_selection.hpp"
#include "kernels/block_scores/table.hpp"

namespace attune::backends::shared {

/// Blocks as pages that the dense kernels read: each is block_size / keys pages of `keys` keys.
struct BlockPages {
  std::int64_t keys = 1;
  /// Of a page of the cache; such a page p holds pages p * per_page … of ours. Follows from the
  /// cache's strides.
  std::int64_t per_page = 1;
};
/// The largest pages that blocks and pages of the cache are both made of; of ragged keys whole
/// blocks, counted from the request's first key.
[[nodiscard]] std::int64_t block_page_keys(const AttentionSpec& spec, std::int64_t page_size,
                                           bool ragged);

[[nodiscard]] SelectionSizes block_selection_sizes(const AttentionSpec& spec,
                                                   const kernels::block_scores::KernelRow& kernel,
                                                   int num_threads, std::int64_t tokens,
                                                   std::int64_t max_keys, std::int64_t page_size);

/// Lists of `plan` in the order of tokens, then KV heads: where each begins in the slots.
void place_lists(const AttentionSpec& spec, SelectionPlan& plan);

/// Fills the call's lists where it brings an indexer; then finds the pages of what the lists name,
/// without what is no visible block, each block once, in the order of keys. How many keys there are
/// of KV head g and token t stands in kept[g * tokens + t].
void select_blocks(const AttentionSpec& spec, const kernels::block_scores::KernelRow& kernel,
                   const SelectionPlan& plan, const BlockPages& pages, const SparseCall& call,
                   Executor& executor);

}  // namespace attune::backends::shared
