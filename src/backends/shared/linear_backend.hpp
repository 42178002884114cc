// A Backend over the CPU kernels of linear attention, for the names gdn, kda, mamba2, lightning,
// short_conv and reference (layer backends). plan() cuts the batch into (request, head) items,
// longest first; run() checks one layer's tensors, runs the items, and moves the convolution's
// state once every head has read it.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::shared {

enum class LinearKernels : bool { vector, reference };

/// `descriptor` outlives the backend. Refuses what the kernels cannot do, with the reason.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_linear(const BackendDescriptor& descriptor,
                                                           const BackendContext& context,
                                                           LinearKernels kernels);

}  // namespace attune::backends::shared
