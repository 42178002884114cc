// Blocks of query tokens and the order in which threads take them (layer plan).
//
// Threads claim items in order and a causal triangle's last block costs far more than its first, so
// the costliest go first: what is left at the end is small (longest processing time first).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attune::plan {

/// Query tokens a block holds: as many as fit `max_rows` rows of `heads` heads, fewer when that
/// would leave threads idle. `total_rows`: rows of the whole batch; a block of fewer than
/// `min_rows` rows would read the same keys too often.
[[nodiscard]] std::int64_t query_block_tokens(std::int64_t heads, std::int64_t max_rows,
                                              std::int64_t min_rows, std::int64_t total_rows,
                                              std::int64_t wanted_blocks);

/// Indices of `costs`, costliest first; equal costs stay in order.
[[nodiscard]] std::vector<std::int32_t> costliest_first(std::span<const double> costs);

}  // namespace attune::plan
