// sparse_mla on vector kernels, planned: which query tokens there are, what they may see, how their
// scoring and attention are shared out. What they will attend to is known to each layer's run only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/validate.hpp>

#include "attention/mask.hpp"
#include "backends/shared/cpu_planner.hpp"
#include "kernels/index_scores/table.hpp"
#include "kernels/merge_states/merge_states.hpp"

namespace attune::backends::shared {

struct SparseSetup {
  Setup dense;  ///< kernels that attend to kept keys, gathered one by one: pages of one token
  const kernels::index_scores::KernelRow* scores = nullptr;
};

/// The workspace's parts.
struct SparseParts {
  std::byte* scratch = nullptr;         ///< one slice a thread
  float* index_scratch = nullptr;       ///< likewise
  float* scores = nullptr;              ///< [threads, max_kv_len]
  std::int32_t* slots = nullptr;        ///< [tokens, topk]: where the kept keys lie
  attention::KeyRange* kept = nullptr;  ///< [tokens]: 0 … how many
  float* partial_o = nullptr;
  float* partial_lse = nullptr;
};

class CpuSparsePlan final : public Plan {
 public:
  attention::BatchFacts facts;
  Workspace workspace;
  SparseParts parts;
  std::int64_t scratch_bytes = 0;  ///< of one thread
  std::int64_t index_floats = 0;   ///< likewise
  std::int64_t max_kv_len = 0;     ///< from one row of scores to the next
  std::int64_t longest_visible = 0;

  std::vector<kernels::dense::Item> items;  ///< kv_begin … kv_end: places in a token's list
  std::vector<kernels::merge_states::Item> merges;
  std::vector<kernels::merge_states::Source> sources;

  std::vector<std::int32_t> kv_indptr;
  std::vector<std::int32_t> kv_indices;
  std::vector<std::int32_t> list_indptr;  ///< [tokens + 1], of slots
  std::vector<std::int32_t> request_of_token;
  std::vector<std::int64_t> visible;  ///< by query token: it sees keys below this
};

[[nodiscard]] std::size_t workspace_bytes(const SparseSetup& setup, const BatchBounds& bounds);

/// Of a batch that was validated and a workspace that was measured.
void make_plan(const SparseSetup& setup, const BatchView& batch, const attention::BatchFacts& facts,
               const Workspace& workspace, CpuSparsePlan& plan);

}  // namespace attune::backends::shared
