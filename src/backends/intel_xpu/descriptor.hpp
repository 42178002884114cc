// All the world knows about intel_xpu before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::intel_xpu {

inline constexpr BackendDescriptor kDescriptor{
    .name = "intel_xpu",
    .summary = "XMX kernels for Intel GPUs",
    .needs = "a library for XPU",
    .capabilities = {{.device = DeviceKind::xpu,
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .page_sizes = {128, 64},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                                  Feature::cross_attention | Feature::attention_chunk |
                                  Feature::mixed_batch | Feature::unequal_head_dims},
                     {.device = DeviceKind::xpu,
                      .variants = {Variant::mla},
                      .phases = {Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .page_sizes = {128, 64, 32, 16},
                      .kv_layouts = {KvLayout::mla_latent}}},
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::intel_xpu
