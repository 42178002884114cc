// All the world knows about flashinfer before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::flashinfer {

inline constexpr FeatureSet kFeatures =
    Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks | Feature::alibi |
    Feature::custom_mask | Feature::cross_attention | Feature::encoder_only | Feature::kv_scales |
    Feature::per_head_scales | Feature::ragged_kv | Feature::mixed_batch | Feature::target_verify |
    Feature::draft_extend | Feature::tree_verify | Feature::unequal_head_dims |
    Feature::cuda_graph | Feature::device_planning | Feature::deterministic |
    Feature::chunked_prefix | Feature::cascade;

inline constexpr FeatureSet kLatentFeatures =
    Feature::lse | Feature::kv_scales | Feature::mixed_batch | Feature::target_verify |
    Feature::draft_extend | Feature::cuda_graph | Feature::chunked_prefix;

inline constexpr BackendDescriptor kDescriptor{
    .name = "flashinfer",
    .summary = "FA2-style paged and ragged kernels with split KV; prefill in wgmma on Hopper",
    .needs = "libattune_cuda.so and a GPU of compute capability 8.0 or newer",
    .capabilities = {{.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{80, 121}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16},
                      .kv_dtypes = {DType::bf16},
                      .max_head_dim = 256,
                      .head_dim_multiple = 8,
                      .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
                      .features = kFeatures},
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{80, 121}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::f16},
                      .kv_dtypes = {DType::f16},
                      .max_head_dim = 256,
                      .head_dim_multiple = 8,
                      .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
                      .features = kFeatures},
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{80, 121}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::fp8_e4m3, DType::fp8_e5m2},
                      .head_dims = {{64, 64}, {128, 128}, {256, 256}},
                      .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
                      .features = kFeatures},
                     {.device = DeviceKind::cuda,
                      .sm = {{75, 121}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2},
                      .max_head_dim = 256,
                      .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
                      .features = kFeatures},
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{80, 121}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16},
                      .kv_dtypes = {DType::bf16},
                      .head_dims = {{576, 512}},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = kLatentFeatures},
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{80, 121}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::f16},
                      .kv_dtypes = {DType::f16},
                      .head_dims = {{576, 512}},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = kLatentFeatures},
                     {.device = DeviceKind::cuda,
                      .sm = {{80, 121}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .head_dims = {{576, 512}},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::lse | Feature::ragged_kv | Feature::mixed_batch |
                                  Feature::target_verify | Feature::cuda_graph |
                                  Feature::chunked_prefix}},
    .paper = "FlashInfer, arXiv:2501.01005",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::flashinfer
