// What an indexer adds to the checks of <attune/validate.hpp> (layer attention): of all keys
// (sparse_mla), of compressed ones (dsv4), or of blocks of keys (minimax_sparse).
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/spec.hpp>
#include <attune/validate.hpp>

namespace attune::attention {

[[nodiscard]] Status validate_indexer(const AttentionSpec& spec);
/// Of an indexer that keeps blocks; for every variant.
[[nodiscard]] Status validate_blocks(const AttentionSpec& spec);

/// What an indexer scores.
struct IndexedKeys {
  KvSource source = KvSource::paged;
  std::int64_t num_ragged = 0;
  std::int64_t pages = -1;  ///< of the cache of the keys themselves; -1 = the batch names none
  std::int64_t page_size = 1;
};

/// LayerCall::sparse for run(): lists to write, with the indexer's tensors, or to read.
[[nodiscard]] Status validate_sparse_run(const LayerCall& call, std::int64_t num_queries,
                                         const AttentionSpec& spec, const IndexedKeys& keys);

/// Likewise for append_kv().
[[nodiscard]] Status validate_sparse_append(const LayerCall& call, const AttentionSpec& spec,
                                            const IndexedKeys& keys);

}  // namespace attune::attention
