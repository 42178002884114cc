// All the world knows about cpu before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

#include "backends/shared/block_sparse_row.hpp"
#include "backends/shared/compressed_rows.hpp"
#include "backends/shared/dual_chunk_row.hpp"
#include "backends/shared/sparse_rows.hpp"

namespace attune::backends::cpu {

inline constexpr BackendDescriptor kDescriptor{
    .name = "cpu",
    .summary =
        "Vector kernels for AVX2, AVX-512 and AVX-512-BF16 with a scalar form: the default on CPUs",
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
          .kv_layouts = {KvLayout::hnd, KvLayout::nhd},
          .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                      Feature::alibi | Feature::custom_mask | Feature::cross_attention |
                      Feature::encoder_only | Feature::xai_temperature | Feature::attention_chunk |
                      Feature::kv_scales | Feature::per_head_scales | Feature::ragged_kv |
                      Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                      Feature::tree_verify | Feature::cascade | Feature::unequal_head_dims |
                      Feature::batch_invariant | Feature::deterministic | Feature::chunked_prefix},
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
                      Feature::cascade | Feature::batch_invariant | Feature::deterministic},
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
                      Feature::tree_verify | Feature::cascade | Feature::batch_invariant |
                      Feature::deterministic | Feature::chunked_prefix},
         shared::kDualChunk,
         shared::kSparsePackedLatents,
         shared::kSparseLatents,
         shared::kCompressed,
         shared::kBlockSparse},
    .paper = "Online softmax, arXiv:1805.02867; FlashAttention-2, arXiv:2307.08691; Flash-Decoding",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::cpu
