// All the world knows about lightning before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::lightning {

inline constexpr BackendDescriptor kDescriptor{
    .name = "lightning",
    .summary = "Linear attention with a fixed decay for each head",
    .needs = "CPU kernels; a kernel in libattune_cuda.so; libraries for the other devices",
    .capabilities = {{.device = DeviceKind::cpu,
                      .variants = {Variant::lightning},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::f32, DType::bf16, DType::f16},
                      .kv_dtypes = {DType::f32, DType::bf16},
                      .features = Feature::mixed_batch | Feature::target_verify},
                     {.device = DeviceKind::cuda,
                      .sm = {{75, 121}},
                      .variants = {Variant::lightning},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::f32, DType::bf16},
                      .features =
                          Feature::mixed_batch | Feature::target_verify | Feature::cuda_graph}},
    .paper = "Lightning Attention-2, arXiv:2401.04658",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::lightning
