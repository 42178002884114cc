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
  /// A block worth no more of them is left whole.
  double whole_parts = 1.0;
  /// > 0: parts of exactly this many keys, whatever the neighbours: batch-invariant results.
  std::int64_t fixed_chunk = 0;
  /// Parts that whoever is free takes next become smaller, so that threads end together: of a block
  /// of at least kShrinks parts half the keys in parts twice as long as the mean one, half of the
  /// rest in parts of half that length, and so on.
  bool shrinking = false;
};

/// Lengths that shrinking parts come in.
inline constexpr int kShrinks = 4;

/// The parts of one block.
struct KvSplit {
  attention::KeyRange range;
  std::int64_t kv_chunk_size = 0;  ///< of the longest parts; a multiple of the granule
  std::int64_t num_parts = 1;
  std::int64_t granule = 1;
  std::int64_t parts_of_a_size = 0;  ///< 0: all are alike

  [[nodiscard]] attention::KeyRange part(std::int64_t i) const;

 private:
  /// Where part `i` would begin if the first one began at 0.
  [[nodiscard]] std::int64_t offset(std::int64_t i) const;
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
