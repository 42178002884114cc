// Which keys a query keeps, on CPUs: scores of an indexer, the best of them, and where these lie.
// Heads are lanes of the score kernel; fewer queries than threads share out keys, more share out
// queries (docs/decisions/0010-sparse-latent.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/device.hpp>
#include <attune/sparse_call.hpp>
#include <attune/spec.hpp>

#include "attention/mask.hpp"
#include "kernels/index_scores/table.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared {

/// A selection's part of a workspace.
struct SelectionParts {
  float* index_scratch = nullptr;       ///< [threads, index_floats]
  float* scores = nullptr;              ///< [threads, max_keys]
  std::int32_t* slots = nullptr;        ///< [tokens, topk]: where the kept keys lie
  attention::KeyRange* kept = nullptr;  ///< [tokens]: 0 … how many
};

struct SelectionSizes {
  std::int64_t threads = 0;
  std::int64_t tokens = 0;
  std::int64_t max_keys = 0;  ///< of one request
  std::int64_t topk = 0;
  std::int64_t index_floats = 0;
};
[[nodiscard]] SelectionSizes selection_sizes(const AttentionSpec& spec,
                                             const kernels::index_scores::KernelRow& kernel,
                                             int num_threads, std::int64_t tokens,
                                             std::int64_t max_keys);
SelectionParts lay_out(plan::WorkspaceCutter& cut, const SelectionSizes& n);

/// The keys of a planned batch that are chosen among: pages of them, or rows of a ragged tensor.
struct SelectionPlan {
  SelectionSizes sizes;
  SelectionParts parts;
  bool ragged = false;
  std::int64_t page_size = 1;
  std::int64_t longest_seen = 0;
  std::vector<std::int64_t> seen;  ///< by query token: it sees keys below this
  std::vector<std::int32_t> request_of_token;
  std::vector<std::int32_t> kv_indptr;
  std::vector<std::int32_t> kv_indices;
  std::vector<std::int32_t> list_indptr;  ///< [tokens + 1], of slots

  /// Takes in the next query token; a batch begins with clear().
  void clear();
  void add_query(std::int64_t request, std::int64_t keys_seen);

  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(seen.size()); }
  [[nodiscard]] std::int64_t seen_by(std::int64_t token) const {
    return seen[static_cast<std::size_t>(token)];
  }
  /// Where a token's request begins: in kv_indices, or among ragged keys.
  [[nodiscard]] std::int32_t first_entry(std::int64_t token) const {
    const std::int32_t request = request_of_token[static_cast<std::size_t>(token)];
    return kv_indptr[static_cast<std::size_t>(request)];
  }
  /// Whether a thread scores all that a token sees, into a row of its own: there are tokens enough.
  [[nodiscard]] bool scores_by_token() const { return num_tokens() >= sizes.threads; }
  [[nodiscard]] float* scores_of(std::int64_t token, int thread) const {
    return parts.scores + (scores_by_token() ? thread : token) * sizes.max_keys;
  }
};

/// Fills the call's lists where it brings an indexer; then finds the slots of what the lists name,
/// without what is no visible key.
void select_keys(const AttentionSpec& spec, const kernels::index_scores::KernelRow& kernel,
                 const SelectionPlan& plan, const SparseCall& call, Executor& executor);

}  // namespace attune::backends::shared
