// Compressed attention on vector kernels, planned: every query token meets its window and its
// compressed keys apart, and the two are joined.
//
// Many tokens: a thread takes a block of one token's heads, leaves the two states in its own rows and
// joins them. Few: the compressed keys are cut into parts that threads share out, and the joins follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/validate.hpp>

#include "attention/mask.hpp"
#include "backends/shared/cpu_selection.hpp"
#include "backends/shared/cpu_sparse_plan.hpp"
#include "kernels/merge_states/merge_states.hpp"

namespace attune::backends::shared {

struct CompressedSetup : SparseSetup {};

/// One block of heads of one token: its window and the parts of its compressed keys.
struct CompressedBlock {
  kernels::dense::Item window;
  kernels::dense::Item compressed;  ///< all of it
};

/// The selection's kv_indptr and kv_indices are of compressed keys; the rest of it, too, where there is
/// an indexer.
class CpuCompressedPlan final : public SparsePlanBase {
 public:
  std::int64_t block_heads = 0;
  std::vector<attention::KeyRange> seen;  ///< compressed keys, by query token
  std::vector<std::int32_t> window_indptr;
  std::vector<std::int32_t> window_indices;
  std::vector<attention::KeyRange> visible;  ///< of the window's table, by query token

  std::vector<CompressedBlock> blocks;
  std::int64_t num_parts = 1;  ///< of each block's compressed keys
  std::int64_t part_keys = 0;
};

[[nodiscard]] std::size_t workspace_bytes(const CompressedSetup& setup, const BatchBounds& bounds);

/// Of a batch that was validated and a workspace that was measured.
void make_plan(const CompressedSetup& setup, const BatchView& batch,
               const attention::BatchFacts& facts, const Workspace& workspace,
               CpuCompressedPlan& plan);

}  // namespace attune::backends::shared
