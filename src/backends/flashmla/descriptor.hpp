// All the world knows about flashmla before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::flashmla {

/// Of the kernels this project has; the last row is what the method could serve.
inline constexpr FeatureSet kBuilt =
    Feature::lse | Feature::kv_scales | Feature::mixed_batch | Feature::target_verify |
    Feature::draft_extend | Feature::cuda_graph | Feature::deterministic | Feature::chunked_prefix;

inline constexpr BackendDescriptor kDescriptor{
    .name = "flashmla",
    .summary = "Latent-cache kernels on Hopper and Blackwell tensor cores",
    .needs = "libattune_cuda.so and a Hopper GPU (compute capability 9.0)",
    .capabilities = {{.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{90, 90}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16},
                      .kv_dtypes = {DType::bf16},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = kBuilt},
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{90, 90}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::f16},
                      .kv_dtypes = {DType::f16},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = kBuilt},
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{90, 90}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16},
                      .kv_dtypes = {DType::fp8_e4m3},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::mla_latent_fp8},
                      .features = kBuilt},
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{90, 90}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::fp8_e4m3},
                      .kv_dtypes = {DType::fp8_e4m3},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = kBuilt},
                     {.device = DeviceKind::cuda,
                      .sm = {{90, 90}, {100, 103}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::lse | Feature::kv_scales | Feature::mixed_batch |
                                  Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph | Feature::chunked_prefix}},
    .paper = "FlashMLA, github.com/deepseek-ai/FlashMLA",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::flashmla
