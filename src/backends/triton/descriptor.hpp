// All the world knows about triton before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::triton {

/// What is built; the rows below are what the name stands for.
inline constexpr FeatureSet kBuilt =
    Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
    Feature::attention_chunk | Feature::encoder_only | Feature::custom_mask |
    Feature::xai_temperature | Feature::kv_scales | Feature::ragged_kv | Feature::mixed_batch |
    Feature::target_verify | Feature::draft_extend | Feature::tree_verify |
    Feature::unequal_head_dims | Feature::cuda_graph | Feature::deterministic |
    Feature::chunked_prefix;
inline constexpr FeatureSet kLatentBuilt =
    Feature::lse | Feature::kv_scales | Feature::mixed_batch | Feature::target_verify |
    Feature::draft_extend | Feature::cuda_graph | Feature::deterministic | Feature::chunked_prefix;

inline constexpr BackendDescriptor kDescriptor{
    .name = "triton",
    .summary = "Portable tiled kernels: extend in two stages, decode with split KV",
    .needs = "a kernel in libattune_cuda.so; libraries for HIP and XPU",
    .capabilities =
        {{.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{80, 121}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16},
          .kv_dtypes = {DType::bf16},
          .max_head_dim = 512,
          .head_dim_multiple = 8,
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kBuilt},
         {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{80, 121}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f16},
          .kv_dtypes = {DType::f16},
          .max_head_dim = 512,
          .head_dim_multiple = 8,
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kBuilt},
         {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{80, 121}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::fp8_e4m3, DType::fp8_e5m2},
          .head_dims = {{64, 64}, {128, 128}, {256, 256}, {512, 512}},
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kBuilt},
         {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{80, 121}},
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16},
          .kv_dtypes = {DType::bf16},
          .max_head_dim = 576,
          .head_dim_multiple = 8,
          .kv_layouts = {KvLayout::mla_latent},
          .features = kLatentBuilt},
         {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{80, 121}},
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f16},
          .kv_dtypes = {DType::f16},
          .max_head_dim = 576,
          .head_dim_multiple = 8,
          .kv_layouts = {KvLayout::mla_latent},
          .features = kLatentBuilt},
         {.device = DeviceKind::cuda,
          .sm = {{75, 121}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2},
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::encoder_only | Feature::custom_mask | Feature::xai_temperature |
                      Feature::kv_scales | Feature::ragged_kv | Feature::mixed_batch |
                      Feature::target_verify | Feature::draft_extend | Feature::tree_verify |
                      Feature::unequal_head_dims | Feature::cuda_graph | Feature::batch_invariant |
                      Feature::deterministic},
         {.device = DeviceKind::hip,
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2},
          .kv_layouts = {KvLayout::nhd},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::encoder_only | Feature::custom_mask | Feature::xai_temperature |
                      Feature::kv_scales | Feature::ragged_kv | Feature::mixed_batch |
                      Feature::target_verify | Feature::draft_extend | Feature::tree_verify |
                      Feature::unequal_head_dims | Feature::cuda_graph | Feature::batch_invariant |
                      Feature::deterministic},
         {.device = DeviceKind::hip,
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2},
          .kv_layouts = {KvLayout::mla_latent},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::encoder_only | Feature::custom_mask | Feature::xai_temperature |
                      Feature::kv_scales | Feature::ragged_kv | Feature::mixed_batch |
                      Feature::target_verify | Feature::draft_extend | Feature::tree_verify |
                      Feature::cuda_graph | Feature::batch_invariant | Feature::deterministic},
         {.device = DeviceKind::xpu,
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2},
          .kv_layouts = {KvLayout::nhd},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::encoder_only | Feature::custom_mask | Feature::xai_temperature |
                      Feature::kv_scales | Feature::ragged_kv | Feature::mixed_batch |
                      Feature::target_verify | Feature::draft_extend | Feature::tree_verify |
                      Feature::unequal_head_dims | Feature::cuda_graph | Feature::batch_invariant |
                      Feature::deterministic},
         {.device = DeviceKind::xpu,
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2},
          .kv_layouts = {KvLayout::mla_latent},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::encoder_only | Feature::custom_mask | Feature::xai_temperature |
                      Feature::kv_scales | Feature::ragged_kv | Feature::mixed_batch |
                      Feature::target_verify | Feature::draft_extend | Feature::tree_verify |
                      Feature::cuda_graph | Feature::batch_invariant | Feature::deterministic}},
    .paper = "Triton, MAPL 2019; Flash-Decoding",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::triton
