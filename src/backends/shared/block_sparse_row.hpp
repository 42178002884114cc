// What CPU backends declare of block-sparse attention: all serve it by the same calls.
#pragma once

#include <attune/descriptor.hpp>

namespace attune::backends::shared {

inline constexpr Capability kBlockSparse{
    .device = DeviceKind::cpu,
    .status = BackendStatus::stable,
    .variants = {Variant::minimax_sparse},
    .phases = {Phase::prefill, Phase::decode},
    .q_dtypes = {DType::f32, DType::bf16, DType::f16},
    .kv_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8},
    .preferred_page_size = 16,
    .kv_layouts = {KvLayout::hnd, KvLayout::nhd},
    .features = Feature::lse | Feature::kv_scales | Feature::per_head_scales | Feature::ragged_kv |
                Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                Feature::unequal_head_dims | Feature::batch_invariant | Feature::deterministic |
                Feature::chunked_prefix};

}  // namespace attune::backends::shared
