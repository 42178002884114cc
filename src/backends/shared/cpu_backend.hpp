// The backend class behind every name whose kernels take dense::Params: a planner, a decode kernel,
// a prefill kernel, and the merge of split rows.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "kernels/block_scores/table.hpp"
#include "kernels/dense/table.hpp"
#include "kernels/index_scores/table.hpp"
#include "plan/cascade.hpp"

namespace attune::backends::shared {

struct CpuKernels {
  const kernels::dense::KernelRow* decode = nullptr;
  const kernels::dense::KernelRow* prefill = nullptr;
  const kernels::index_scores::KernelRow* scores =
      nullptr;  ///< of names that serve sparse_mla or dsv4
  const kernels::block_scores::KernelRow* block_scores =
      nullptr;  ///< of names that serve minimax_sparse
};

/// `find` picks the kernels for a context whose spec makes sense; a null row is a refusal.
/// `cascade`: which prefix_groups become levels; a batch-invariant backend takes none.
Result<std::unique_ptr<Backend>> make_cpu_backend(
    const BackendContext& context, const BackendDescriptor& descriptor,
    CpuKernels (*find)(const BackendContext&),
    plan::CascadeMode cascade = plan::CascadeMode::by_cost);

}  // namespace attune::backends::shared
