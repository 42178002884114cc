// All the world knows about ascend before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::ascend {

inline constexpr BackendDescriptor kDescriptor{
    .name = "ascend",
    .summary = "Fused NPU attention operators",
    .needs = "a library for NPU",
    .capabilities = {{.device = DeviceKind::npu,
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .page_sizes = {128},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                                  Feature::cross_attention | Feature::encoder_only |
                                  Feature::mixed_batch | Feature::target_verify |
                                  Feature::draft_extend | Feature::unequal_head_dims |
                                  Feature::cuda_graph | Feature::deterministic},
                     {.device = DeviceKind::npu,
                      .variants = {Variant::mla, Variant::sparse_mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .page_sizes = {128},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph | Feature::deterministic}},
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::ascend
