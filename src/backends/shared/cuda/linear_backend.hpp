// A Backend over the Hopper kernels of linear attention, for the names gdn, kda, mamba2, lightning
// and short_conv (layer backends).
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::shared::cuda {

/// `descriptor` outlives the backend. The first CUDA call of the process may be here. Refuses what
/// the kernels cannot do, with the reason.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_linear(const BackendDescriptor& descriptor,
                                                           const BackendContext& context);

}  // namespace attune::backends::shared::cuda
