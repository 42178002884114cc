// Blocks of query rows for the vector kernels: what goes through the keys together, before any
// split of the keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/batch.hpp>
#include <attune/spec.hpp>

#include "attention/mask.hpp"
#include "backends/shared/cpu_planner.hpp"
#include "kernels/dense/params.hpp"
#include "plan/cascade.hpp"

namespace attune::backends::shared {

/// Parts each thread would get if all work were cut evenly: enough that the last one to finish
/// keeps the others waiting for a fraction of the whole only.
inline constexpr std::int64_t kPartsPerThread = 4;

struct Block {
  kernels::dense::Item item;
  bool decodes = false;  ///< by paged_decode; else by ragged_prefill
  double cost = 0.0;
};

/// Heads of one KV head that fit a block, and how many blocks hold them all.
struct HeadBlocks {
  std::int64_t heads;
  std::int64_t count;
};
[[nodiscard]] HeadBlocks head_blocks(const AttentionSpec& spec);

/// A single query token of few heads reads its keys in place.
[[nodiscard]] bool decodes(const AttentionSpec& spec, std::int64_t qo_len);

/// What a shared level costs and saves on this backend.
[[nodiscard]] plan::CascadeCosts cascade_costs(const Setup& setup);

/// Every request's rows against the keys it reads by itself.
[[nodiscard]] std::vector<Block> own_blocks(const Setup& setup, const BatchView& batch,
                                            std::span<const attention::KeyRange> visible,
                                            const plan::Cascade& cascade);

/// All requests' rows against the keys of one level.
[[nodiscard]] std::vector<Block> level_blocks(const Setup& setup, const plan::SharedLevel& level,
                                              std::span<const attention::KeyRange> visible);

}  // namespace attune::backends::shared
