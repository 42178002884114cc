// All the world knows about kda before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/linear_rows.hpp"

namespace attune::backends::kda {

inline constexpr BackendDescriptor kDescriptor{
    .name = "kda",
    .summary = "Kimi delta attention: a decay for each channel",
    .needs = "a kernel in libattune_cuda.so; libraries for the other devices",
    .capabilities = {shared::linear_cpu_row(Variant::kda), shared::linear_hopper_row(Variant::kda),
                     shared::linear_outside_row(Variant::kda, DeviceKind::cuda),
                     shared::linear_outside_row(Variant::kda, DeviceKind::hip),
                     shared::linear_outside_row(Variant::kda, DeviceKind::xpu),
                     shared::linear_outside_row(Variant::kda, DeviceKind::npu)},
    .paper = "Kimi Linear, arXiv:2510.26692",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::kda
