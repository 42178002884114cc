// sparse_mla on vector kernels, planned: which query tokens there are, what they may see, how their
// scoring and attention are shared out. What they will attend to is known to each layer's run only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/validate.hpp>

#include "backends/shared/cpu_planner.hpp"
#include "backends/shared/cpu_selection.hpp"
#include "kernels/index_scores/table.hpp"
#include "kernels/merge_states/merge_states.hpp"

namespace attune::backends::shared {

struct SparseSetup {
  Setup dense;  ///< kernels that attend to kept keys, gathered one by one: pages of one token
  const kernels::index_scores::KernelRow* scores = nullptr;
};

/// The workspace's parts.
struct SparseParts {
  std::byte* scratch = nullptr;  ///< one slice a thread
  float* partial_o = nullptr;
  float* partial_lse = nullptr;
};

/// What a workspace is cut by; partial_rows is the plan's own affair.
struct SparseSizes {
  std::int64_t threads = 0;
  std::int64_t scratch_bytes = 0;  ///< of one thread
  SelectionSizes selection;        ///< of at most so many keys, where there is an indexer
  std::int64_t partial_rows = 0;
  std::int64_t head_dim_vo = 0;
};
[[nodiscard]] SparseSizes sparse_sizes(const SparseSetup& setup, const BatchBounds& bounds,
                                       std::int64_t max_keys);
SparseParts lay_out(plan::WorkspaceCutter& cut, const SparseSizes& n);
/// Of both parts.
[[nodiscard]] std::size_t bytes_of(const SparseSizes& n);

/// Heads of one token and KV head that go through its keys together.
[[nodiscard]] std::int64_t block_heads(const AttentionSpec& spec);
/// Kept keys that a part has at least: a state of many rows is as long as hundreds of them.
inline constexpr std::int64_t kMinPart = 256;

/// What plans of kept keys have in common.
class SparsePlanBase : public Plan {
 public:
  attention::BatchFacts facts;
  Workspace workspace;
  SparseParts parts;
  std::int64_t scratch_bytes = 0;  ///< of one thread
  SelectionPlan selection;
};
/// Makes or renews them: the workspace is cut by `n`.
void begin_plan(const SparseSizes& n, const attention::BatchFacts& facts,
                const Workspace& workspace, SparsePlanBase& plan);

/// The query tokens of a batch, and what each sees.
void place_queries(const BatchView& batch, SelectionPlan& selection);

/// Parts that make enough work of few blocks.
[[nodiscard]] std::int64_t parts_wanted(const Setup& setup);

/// Attention to lists of kept keys, one for each KV head of each token, shared out.
struct ListWork {
  /// kv_begin … kv_end: places in the list, which is request token * num_kv_heads + kv_head.
  std::vector<kernels::dense::Item> items;
  std::vector<kernels::merge_states::Item> merges;
  std::vector<kernels::merge_states::Source> sources;
};
/// Each list whole or, where they are few, in parts. Lists have room for `room` keys, and in this
/// batch at most `longest`. Returns the partial rows used.
std::int64_t share_out(const Setup& setup, std::int64_t tokens, std::int64_t room,
                       std::int64_t longest, ListWork& work);
/// Partial rows that share_out uses at most.
[[nodiscard]] std::int64_t most_partial_rows(const Setup& setup);

class CpuSparsePlan final : public SparsePlanBase {
 public:
  ListWork work;
};

[[nodiscard]] std::size_t workspace_bytes(const SparseSetup& setup, const BatchBounds& bounds);

/// Of a batch that was validated and a workspace that was measured.
void make_plan(const SparseSetup& setup, const BatchView& batch, const attention::BatchFacts& facts,
               const Workspace& workspace, CpuSparsePlan& plan);

}  // namespace attune::backends::shared
