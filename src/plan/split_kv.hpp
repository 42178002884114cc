// Cutting one block's keys into parts that several threads work on (layer plan). The parts are
// joined by their lse afterwards (kernels/merge_states).
#pragma once

#include <cstdint>

#include "attention/mask.hpp"

namespace attune::plan {

struct SplitPolicy {
  std::int64_t granule = 64;     ///< parts begin at multiples of this
  std::int64_t min_chunk = 256;  ///< a shorter part costs more in merging than it gains
  /// Work is cut so that about this many equal parts would hold all of it. 1 = never split.
  std::int64_t target_parts = 1;
  /// > 0: parts of exactly this many keys, whatever the neighbours: batch-invariant results.
  std::int64_t fixed_chunk = 0;
};

/// The parts of one block.
struct KvSplit {
  attention::KeyRange range;
  std::int64_t kv_chunk_size = 0;  ///< a multiple of the granule
  std::int64_t num_parts = 1;

  [[nodiscard]] attention::KeyRange part(std::int64_t i) const;
};

/// How to cut a block of `cost` out of `total_cost` whose rows see the keys `range`.
[[nodiscard]] KvSplit split_kv(const SplitPolicy& policy, attention::KeyRange range, double cost,
                               double total_cost);

/// No batch has more parts in split blocks than this. `blocks_per_request` and the key counts bound
/// the batch; they matter to the fixed chunk only.
[[nodiscard]] std::int64_t max_split_parts(const SplitPolicy& policy,
                                           std::int64_t blocks_per_request, std::int64_t max_batch,
                                           std::int64_t max_kv_len, std::int64_t max_total_keys);

}  // namespace attune::plan
