// Indexers as <attune/sparse_call.hpp> states them, in double precision.
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

/// minimax_sparse: likewise of one index head, before any maximum over a block.
[[nodiscard]] double block_key_score(const AttentionSpec& spec, const LayerCall& call,
                                     std::int64_t token, int head, const double* key, double* q);

/// A token's list of kept keys; of kept blocks, that of one KV head.
[[nodiscard]] std::int32_t* list_of(const LayerCall& call, std::int64_t token,
                                    std::int64_t kv_head);

/// Writes a list from scratch.scores[0, num_keys).
void keep_largest(const AttentionSpec& spec, std::int64_t num_keys, const IndexerScratch& scratch,
                  std::int32_t* list);
/// Likewise from those of blocks: the first and last ones are kept whatever their scores.
void keep_best_blocks(const AttentionSpec& spec, std::int64_t num_blocks,
                      const IndexerScratch& scratch, std::int32_t* list);

}  // namespace attune::backends::reference
