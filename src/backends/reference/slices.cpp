#include "backends/reference/slices.hpp"

#include <algorithm>

namespace attune::backends::reference {
namespace {

/// What an indexer chooses among.
std::int64_t indexed(const AttentionSpec& spec, const Lengths& n) {
  return is_compressed(spec) ? n.compressed : n.keys;
}

/// A list of kept keys may name one more than once, a list of blocks means each once.
std::int64_t max_logits(const AttentionSpec& spec, const Lengths& n) {
  const bool keys = has_indexer(spec) && !keeps_blocks(spec);
  const std::int64_t kept = keys ? std::max<std::int64_t>(indexed(spec, n), spec.index_topk) : 0;
  if (is_compressed(spec)) return n.keys + std::max(kept, n.compressed);
  return std::max(n.keys, kept);
}

/// A query head, a key, and a score and a place for every key.
std::int64_t indexer_doubles(const AttentionSpec& spec, const Lengths& n) {
  if (!has_indexer(spec)) return 0;
  return 2 * std::int64_t{spec.index_head_dim} + indexed(spec, n) + (indexed(spec, n) + 1) / 2;
}

}  // namespace

std::int64_t thread_doubles(const AttentionSpec& spec, const Lengths& n) {
  return std::int64_t{spec.q_columns()} + std::max(spec.head_dim_qk, spec.head_dim_vo) +
         spec.head_dim_vo + max_logits(spec, n) + indexer_doubles(spec, n);
}

Slice slice_of(const Workspace& workspace, const AttentionSpec& spec, const Lengths& n,
               int thread) {
  auto* base = static_cast<double*>(workspace.device) + thread * thread_doubles(spec, n);
  double* row = base + spec.q_columns();
  double* o = row + std::max(spec.head_dim_qk, spec.head_dim_vo);
  return {.q = base, .row = row, .o = o, .logits = o + spec.head_dim_vo};
}

IndexerScratch indexer_scratch(const Workspace& workspace, const AttentionSpec& spec,
                               const Lengths& n, int thread) {
  double* const q = static_cast<double*>(workspace.device) +
                    (thread + 1) * thread_doubles(spec, n) - indexer_doubles(spec, n);
  double* const scores = q + 2 * spec.index_head_dim;
  return {.q = q,
          .key = q + spec.index_head_dim,
          .scores = scores,
          .order = reinterpret_cast<std::int32_t*>(scores + indexed(spec, n))};
}

}  // namespace attune::backends::reference
