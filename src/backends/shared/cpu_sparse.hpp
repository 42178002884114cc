// sparse_mla behind a CPU name: index scores, selection, and the dense kernels over kept keys.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/cpu_sparse_plan.hpp"

namespace attune::backends::shared {

/// `setup.dense.spec` was validated and its kernels were found.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cpu_sparse(const BackendContext& context,
                                                               const BackendDescriptor& descriptor,
                                                               const SparseSetup& setup);

}  // namespace attune::backends::shared
