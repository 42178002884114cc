// All the world knows about gdn before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/linear_rows.hpp"

namespace attune::backends::gdn {

inline constexpr BackendDescriptor kDescriptor{
    .name = "gdn",
    .summary = "Gated delta rule: recurrent decode, chunked prefill",
    .needs = "a kernel in libattune_cuda.so; libraries for the other devices",
    .capabilities = {shared::linear_cpu_row(Variant::gdn), shared::linear_hopper_row(Variant::gdn),
                     shared::linear_outside_row(Variant::gdn, DeviceKind::cuda),
                     shared::linear_outside_row(Variant::gdn, DeviceKind::hip),
                     shared::linear_outside_row(Variant::gdn, DeviceKind::xpu),
                     shared::linear_outside_row(Variant::gdn, DeviceKind::npu)},
    .paper = "Gated Delta Networks, arXiv:2412.06464",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::gdn
