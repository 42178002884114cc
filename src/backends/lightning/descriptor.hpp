// All the world knows about lightning before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/linear_rows.hpp"

namespace attune::backends::lightning {

inline constexpr BackendDescriptor kDescriptor{
    .name = "lightning",
    .summary = "Linear attention with a fixed decay for each head",
    .needs = "a kernel in libattune_cuda.so; libraries for the other devices",
    .capabilities = {shared::linear_cpu_row(Variant::lightning),
                     shared::linear_hopper_row(Variant::lightning),
                     shared::linear_outside_row(Variant::lightning, DeviceKind::cuda)},
    .paper = "Lightning Attention-2, arXiv:2401.04658",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::lightning
