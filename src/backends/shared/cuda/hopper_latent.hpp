// The backend behind flashmla on Hopper: plans a batch as strips of query rows against spans of key
// pages, and runs a decode and a merge kernel a layer.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::shared {

/// Makes it on the context's device, or refuses with the reason.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_hopper_latent(
    const BackendContext& context, const BackendDescriptor& descriptor);

}  // namespace attune::backends::shared
