// All the world knows about aiter before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::aiter {

inline constexpr BackendDescriptor kDescriptor{
    .name = "aiter",
    .summary = "ROCm kernels: varlen prefill, paged decode, persistent latent decode",
    .needs = "a library for HIP",
    .capabilities = {{.device = DeviceKind::hip,
                      .archs = {"gfx90a", "gfx942", "gfx950"},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .max_head_dim = 256,
                      .page_sizes = {1, 16, 64},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::lse | Feature::sliding_window | Feature::sinks |
                                  Feature::kv_scales | Feature::mixed_batch |
                                  Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph},
                     {.device = DeviceKind::hip,
                      .archs = {"gfx90a", "gfx942", "gfx950"},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .head_dims = {{576, 512}},
                      .gqa_group_sizes = {4, 8, 16, 32, 48, 64, 96, 128},
                      .page_sizes = {1, 64},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::lse | Feature::kv_scales | Feature::mixed_batch |
                                  Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph}},
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::aiter
