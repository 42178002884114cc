// The indexer of sparse_mla as <attune/sparse_call.hpp> states it, in double precision.
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/spec.hpp>

#include "backends/reference/kv_rows.hpp"

namespace attune::backends::reference {

/// Index keys of the cache, or the call's own where they are ragged.
[[nodiscard]] KvRows index_rows(const LayerCall& call, bool ragged);

/// One thread's memory: a query head, a key, and a score and a place for every key.
struct IndexerScratch {
  double* q;
  double* key;
  double* scores;
  std::int32_t* order;
};

/// The score of one query token and the index key `key` (index_head_dim doubles).
[[nodiscard]] double index_score(const AttentionSpec& spec, const LayerCall& call,
                                 std::int64_t token, const double* key, double* q);

/// Writes the token's row of topk_indices from scratch.scores[0, num_keys).
void keep_largest(const AttentionSpec& spec, const LayerCall& call, std::int64_t token,
                  std::int64_t num_keys, const IndexerScratch& scratch);

}  // namespace attune::backends::reference
