// All the world knows about wave before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::wave {

inline constexpr BackendDescriptor kDescriptor{
    .name = "wave",
    .summary = "Compiler-generated ROCm kernels",
    .needs = "a library for HIP",
    .capabilities = {{.device = DeviceKind::hip,
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .page_sizes = {1},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::lse | Feature::soft_cap | Feature::cuda_graph},
                     {.device = DeviceKind::hip,
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .page_sizes = {1},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::lse | Feature::cuda_graph}},
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::wave
