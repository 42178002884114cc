// All the world knows about mamba2 before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/linear_rows.hpp"

namespace attune::backends::mamba2 {

inline constexpr BackendDescriptor kDescriptor{
    .name = "mamba2",
    .summary = "State-space duality: recurrent decode, chunked scan",
    .needs = "a kernel in libattune_cuda.so; libraries for the other devices",
    .capabilities = {shared::linear_cpu_row(Variant::mamba2),
                     shared::linear_hopper_row(Variant::mamba2),
                     shared::linear_outside_row(Variant::mamba2, DeviceKind::cuda),
                     shared::linear_outside_row(Variant::mamba2, DeviceKind::hip),
                     shared::linear_outside_row(Variant::mamba2, DeviceKind::xpu),
                     shared::linear_outside_row(Variant::mamba2, DeviceKind::npu)},
    .paper = "Mamba-2, arXiv:2405.21060",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::mamba2
