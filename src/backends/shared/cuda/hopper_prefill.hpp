// The backend behind fa3 and fa4 on Hopper: plans a batch as tiles of query rows, longest first,
// and runs one kernel a layer. The two names differ in the kernels they take.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::backends::shared {

/// Makes it on the context's device, or refuses with the reason.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_hopper_prefill(
    const BackendContext& context, const BackendDescriptor& descriptor,
    kernels::ragged_prefill::sm90::Strategy strategy);

}  // namespace attune::backends::shared
