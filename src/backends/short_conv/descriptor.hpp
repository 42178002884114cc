// All the world knows about short_conv before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/linear_rows.hpp"

namespace attune::backends::short_conv {

inline constexpr BackendDescriptor kDescriptor{
    .name = "short_conv",
    .summary = "Gated causal convolution of a few taps",
    .needs = "a kernel in libattune_cuda.so; libraries for the other devices",
    .capabilities = {shared::linear_cpu_row(Variant::short_conv),
                     shared::linear_hopper_row(Variant::short_conv),
                     shared::linear_outside_row(Variant::short_conv, DeviceKind::cuda),
                     shared::linear_outside_row(Variant::short_conv, DeviceKind::hip),
                     shared::linear_outside_row(Variant::short_conv, DeviceKind::xpu)},
    .paper = "LFM2",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::short_conv
