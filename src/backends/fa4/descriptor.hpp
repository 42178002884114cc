// All the world knows about fa4 before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::fa4 {

/// Of the kernels this project has, for Hopper; the later rows are what the method could serve.
inline constexpr FeatureSet kBuilt =
    Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
    Feature::cross_attention | Feature::encoder_only | Feature::kv_scales | Feature::ragged_kv |
    Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
    Feature::unequal_head_dims | Feature::cuda_graph | Feature::batch_invariant |
    Feature::deterministic | Feature::chunked_prefix;

inline constexpr BackendDescriptor kDescriptor{
    .name = "fa4",
    .summary = "fa3 on Hopper with a lazy running maximum; for Blackwell, tensor memory to come",
    .needs =
        "libattune_cuda.so and a Hopper GPU; a kernel for SM 10.0, and CUDA 12.8, on Blackwell",
    .capabilities =
        {{.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{90, 90}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill},
          .q_dtypes = {DType::bf16},
          .kv_dtypes = {DType::bf16},
          .head_dims = {{64, 64}, {128, 128}, {192, 128}, {256, 256}},
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kBuilt},
         {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{90, 90}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill},
          .q_dtypes = {DType::f16},
          .kv_dtypes = {DType::f16},
          .head_dims = {{64, 64}, {128, 128}, {256, 256}},
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kBuilt},
         {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{90, 90}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill},
          .q_dtypes = {DType::bf16},
          .kv_dtypes = {DType::fp8_e4m3},
          .head_dims = {{64, 64}, {128, 128}},
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kBuilt},
         {.device = DeviceKind::cuda,
          .sm = {{90, 90}, {120, 121}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16},
          .max_head_dim = 256,
          .kv_layouts = {KvLayout::nhd},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::cross_attention | Feature::encoder_only | Feature::attention_chunk |
                      Feature::ragged_kv | Feature::mixed_batch | Feature::target_verify |
                      Feature::draft_extend | Feature::tree_verify | Feature::unequal_head_dims |
                      Feature::cuda_graph | Feature::deterministic | Feature::chunked_prefix},
         {.device = DeviceKind::cuda,
          .sm = {{100, 110}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16},
          .max_head_dim = 256,
          .page_sizes = {128},
          .kv_layouts = {KvLayout::nhd},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::cross_attention | Feature::encoder_only | Feature::attention_chunk |
                      Feature::ragged_kv | Feature::mixed_batch | Feature::target_verify |
                      Feature::draft_extend | Feature::tree_verify | Feature::unequal_head_dims |
                      Feature::cuda_graph | Feature::deterministic | Feature::chunked_prefix},
         {.device = DeviceKind::cuda,
          .sm = {{100, 110}},
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16},
          .head_dims = {{576, 512}},
          .kv_layouts = {KvLayout::mla_latent},
          .features = Feature::lse | Feature::ragged_kv | Feature::mixed_batch |
                      Feature::target_verify | Feature::draft_extend | Feature::tree_verify |
                      Feature::cuda_graph | Feature::deterministic | Feature::chunked_prefix}},
    .paper = "FlashAttention-4",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::fa4
