// What CPU backends declare of sparse latent attention: both serve it by the same calls.
#pragma once

#include <attune/descriptor.hpp>

namespace attune::backends::shared {

inline constexpr FeatureSet kSparseFeatures =
    Feature::lse | Feature::kv_scales | Feature::mixed_batch | Feature::target_verify |
    Feature::draft_extend | Feature::batch_invariant | Feature::deterministic;

inline constexpr Capability kSparseLatents{
    .device = DeviceKind::cpu,
    .status = BackendStatus::stable,
    .variants = {Variant::sparse_mla},
    .phases = {Phase::prefill, Phase::decode},
    .q_dtypes = {DType::f32, DType::bf16, DType::f16},
    .kv_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8},
    .preferred_page_size = 16,
    .kv_layouts = {KvLayout::mla_latent},
    .features = kSparseFeatures | Feature::ragged_kv | Feature::chunked_prefix};

/// The fp8 cache of 656 bytes a token, whose keys come from pages alone.
inline constexpr Capability kSparsePackedLatents{.device = DeviceKind::cpu,
                                                 .status = BackendStatus::stable,
                                                 .variants = {Variant::sparse_mla},
                                                 .phases = {Phase::prefill, Phase::decode},
                                                 .q_dtypes = {DType::f32, DType::bf16, DType::f16},
                                                 .kv_dtypes = {DType::fp8_e4m3},
                                                 .head_dims = {{576, 512}},
                                                 .preferred_page_size = 16,
                                                 .kv_layouts = {KvLayout::mla_latent_fp8},
                                                 .features = kSparseFeatures};

}  // namespace attune::backends::shared
