// From a context to what a paged backend settles once: the checks, its kernels, their grids.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

#include "backends/shared/cuda/paged_attention.hpp"
#include "backends/shared/cuda/paged_planner.hpp"

namespace attune::backends::shared::paged {

/// On the context's device, which becomes the current one; or the reason why not.
[[nodiscard]] Result<Setup> make_setup(const BackendContext& context,
                                       const BackendDescriptor& descriptor,
                                       const PagedOptions& options);

}  // namespace attune::backends::shared::paged
