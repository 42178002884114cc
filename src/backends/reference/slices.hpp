// What a thread of the reference backend keeps in its slice of the workspace.
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/spec.hpp>

#include "backends/reference/indexer.hpp"

namespace attune::backends::reference {

[[nodiscard]] inline bool is_compressed(const AttentionSpec& spec) {
  return spec.compress_ratio > 0;
}
[[nodiscard]] inline bool has_indexer(const AttentionSpec& spec) { return spec.index_topk > 0; }
[[nodiscard]] inline bool keeps_blocks(const AttentionSpec& spec) {
  return spec.index_block_size > 0;
}

/// Of one request, at most.
struct Lengths {
  std::int64_t keys = 0;
  std::int64_t compressed = 0;
};
template <class FactsOrBounds>
[[nodiscard]] Lengths lengths_of(const AttentionSpec& spec, const FactsOrBounds& most) {
  return {.keys = most.max_kv_len,
          .compressed = is_compressed(spec) ? most.max_positions / spec.compress_ratio : 0};
}

/// One thread's slice of the workspace, but for its indexer's.
struct Slice {
  double* q;       ///< [q_columns]
  double* row;     ///< [max(head_dim_qk, head_dim_vo)]: one stored key or value
  double* o;       ///< [head_dim_vo]
  double* logits;  ///< [max_logits]
};

/// Doubles of a slice.
[[nodiscard]] std::int64_t thread_doubles(const AttentionSpec& spec, const Lengths& n);

[[nodiscard]] Slice slice_of(const Workspace& workspace, const AttentionSpec& spec,
                             const Lengths& n, int thread);
[[nodiscard]] IndexerScratch indexer_scratch(const Workspace& workspace, const AttentionSpec& spec,
                                             const Lengths& n, int thread);

}  // namespace attune::backends::reference
