// All the world knows about intel_amx before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::intel_amx {

inline constexpr BackendDescriptor kDescriptor{
    .name = "intel_amx",
    .summary = "AMX tile kernels for Xeon: split-KV decode, blocked prefill",
    .needs = "AMX tile kernels, and a CPU whose AMX the kernel permits",
    .capabilities = {{.device = DeviceKind::cpu,
                      .isa = CpuIsa::amx,
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                                  Feature::cross_attention | Feature::custom_mask |
                                  Feature::unequal_head_dims | Feature::mixed_batch |
                                  Feature::cuda_graph | Feature::target_verify |
                                  Feature::draft_extend | Feature::tree_verify},
                     {.device = DeviceKind::cpu,
                      .isa = CpuIsa::amx,
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::mixed_batch | Feature::cuda_graph |
                                  Feature::target_verify | Feature::draft_extend |
                                  Feature::tree_verify}},
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::intel_amx
