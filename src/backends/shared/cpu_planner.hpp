// From a checked batch to work items and a workspace: everything a run of the vector kernels needs
// and no layer changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/spec.hpp>
#include <attune/validate.hpp>

#include "attention/block_table.hpp"
#include "attention/mask.hpp"
#include "kernels/dense/params.hpp"
#include "kernels/dense/table.hpp"
#include "kernels/merge_states/merge_states.hpp"
#include "plan/cascade.hpp"

namespace attune::backends::shared {

/// What was settled when the backend was made.
struct Setup {
  AttentionSpec spec{};
  int num_threads = 1;
  bool batch_invariant = false;
  plan::CascadeMode cascade = plan::CascadeMode::by_cost;
  bool packed_latents = false;  ///< the cache is mla_latent_fp8
  const kernels::dense::KernelRow* decode = nullptr;
  const kernels::dense::KernelRow* prefill = nullptr;
  /// Queries that see more keys than this are attended to elsewhere, once the plan's items are done;
  /// 0 = none are.
  std::int64_t most_keys = 0;
};

struct WorkItem {
  kernels::dense::Item item;
  bool decodes = false;  ///< by paged_decode; else by ragged_prefill
  int query = 0;         ///< dual_chunk: which of a head's queries
};

/// The workspace's parts.
struct Parts {
  std::byte* scratch = nullptr;  ///< one slice a thread
  float* partial_o = nullptr;
  float* partial_lse = nullptr;
};

class CpuPlan final : public Plan {
 public:
  attention::BatchFacts facts;
  Workspace workspace;
  Parts parts;
  std::int64_t scratch_bytes = 0;  ///< of one thread

  std::vector<WorkItem> items;                      ///< costliest first
  std::vector<kernels::merge_states::Item> merges;  ///< rows of split blocks and of levels
  std::vector<kernels::merge_states::Source> sources;

  // Copies, so that a plan outlives the caller's arrays.
  std::vector<std::int32_t> kv_indptr;
  std::vector<std::int32_t> kv_indices;
  std::vector<std::uint8_t> custom_mask;
  std::vector<std::int64_t> custom_mask_indptr;
  int mask_heads = 0;  ///< of the mask by blocks
  std::vector<std::int64_t> mask_indptr;
  std::vector<std::int32_t> mask_blocks;
  std::vector<std::uint8_t> mask_bits;
  /// By query token, key indices; dual_chunk: of each of its queries, one after another.
  std::vector<attention::KeyRange> visible;
  std::vector<std::int64_t> key_position;    ///< by query token
  std::vector<float> temperature;            ///< by query token; empty = 1
  std::vector<std::int64_t> first_position;  ///< by request, of its first key

  [[nodiscard]] attention::BlockTable block_mask() const {
    if (mask_indptr.empty()) return {};
    return {mask_heads, mask_indptr.data(), mask_blocks.data(), mask_bits.data()};
  }
};

/// Bytes that any batch within `bounds` needs; monotone in every bound.
[[nodiscard]] std::size_t workspace_bytes(const Setup& setup, const BatchBounds& bounds);

/// Fills `plan` from a batch that was validated and a workspace that was measured.
void make_plan(const Setup& setup, const BatchView& batch, const attention::BatchFacts& facts,
               const Workspace& workspace, CpuPlan& plan);

/// The layouts of a thread's slice for either kernel.
[[nodiscard]] kernels::dense::ScratchLayout decode_scratch(const Setup& setup);
[[nodiscard]] kernels::dense::ScratchLayout prefill_scratch(const Setup& setup);

}  // namespace attune::backends::shared
