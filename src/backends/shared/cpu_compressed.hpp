// dsv4 behind a CPU name, where layers have compressed keys (docs/decisions/0011-compressed-attention.md).
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/cpu_sparse_plan.hpp"

namespace attune::backends::shared {

/// Of a spec that was checked; `setup.scores` null without an indexer.
Result<std::unique_ptr<Backend>> make_cpu_compressed(const BackendContext& context,
                                                     const BackendDescriptor& descriptor,
                                                     const SparseSetup& setup);

}  // namespace attune::backends::shared
