// minimax_sparse on vector kernels: an indexer scores blocks of keys, each KV head of a token keeps
// the best, and the dense kernels attend to them as pages (docs/decisions/0013-block-sparse.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/cpu_sparse_plan.hpp"
#include "kernels/block_scores/table.hpp"

namespace attune::backends::shared {

struct BlockSparseSetup {
  Setup dense;  ///< kernels that attend to kept blocks, or to all of queries that leave none out
  const kernels::block_scores::KernelRow* scores = nullptr;
  std::int32_t page_size = 1;
};

class CpuBlockSparsePlan final : public SparsePlanBase {
 public:
  ListWork work;
  CpuPlan dense;            ///< of queries that leave nothing out, unless the call brings lists
  bool any_dense = false;   ///< there are some …
  bool any_sparse = false;  ///< … and others
};

[[nodiscard]] std::size_t workspace_bytes(const BlockSparseSetup& setup, const BatchBounds& bounds);
/// Of a batch that was validated and a workspace that was measured.
void make_plan(const BlockSparseSetup& setup, const BatchView& batch,
               const attention::BatchFacts& facts, const Workspace& workspace,
               CpuBlockSparsePlan& plan);

Result<std::unique_ptr<Backend>> make_cpu_block_sparse(const BackendContext& context,
                                                       const BackendDescriptor& descriptor,
                                                       const BlockSparseSetup& setup);

}  // namespace attune::backends::shared
