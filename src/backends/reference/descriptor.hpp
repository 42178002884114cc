// All the world knows about reference before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/block_sparse_row.hpp"
#include "backends/shared/compressed_rows.hpp"
#include "backends/shared/dual_chunk_row.hpp"
#include "backends/shared/sparse_rows.hpp"

namespace attune::backends::reference {

inline constexpr BackendDescriptor kDescriptor{
    .name = "reference",
    .summary = "Double precision, obvious loops: what every other backend is held against",
    .needs = "nothing",
    .capabilities =
        {{.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16, DType::f16},
          .kv_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2,
                        DType::i8},
          .preferred_page_size = 16,
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::alibi | Feature::custom_mask | Feature::cross_attention |
                      Feature::encoder_only | Feature::xai_temperature | Feature::attention_chunk |
                      Feature::kv_scales | Feature::per_head_scales | Feature::ragged_kv |
                      Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                      Feature::tree_verify | Feature::unequal_head_dims | Feature::batch_invariant |
                      Feature::deterministic | Feature::chunked_prefix | Feature::block_mask |
                      Feature::score_mod},
         {.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16, DType::f16},
          .kv_dtypes = {DType::fp8_e4m3},
          .head_dims = {{576, 512}},
          .preferred_page_size = 16,
          .kv_layouts = {KvLayout::mla_latent_fp8},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::alibi | Feature::custom_mask | Feature::xai_temperature |
                      Feature::attention_chunk | Feature::kv_scales | Feature::mixed_batch |
                      Feature::target_verify | Feature::draft_extend | Feature::tree_verify |
                      Feature::batch_invariant | Feature::deterministic},
         {.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16, DType::f16},
          .kv_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2,
                        DType::i8},
          .preferred_page_size = 16,
          .kv_layouts = {KvLayout::mla_latent},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::alibi | Feature::custom_mask | Feature::xai_temperature |
                      Feature::attention_chunk | Feature::kv_scales | Feature::ragged_kv |
                      Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                      Feature::tree_verify | Feature::batch_invariant | Feature::deterministic |
                      Feature::chunked_prefix},
         shared::kDualChunk,
         shared::kSparsePackedLatents,
         shared::kSparseLatents,
         shared::kCompressedWithRagged,
         shared::kBlockSparse,
         {.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {Variant::gdn, Variant::kda, Variant::mamba2, Variant::lightning,
                       Variant::short_conv},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16},
          .kv_dtypes = {DType::f32},
          // Not batch_invariant: between steps a state is rounded to fp32, within one it is not.
          .features = Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                      Feature::deterministic}},
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::reference
