// All the world knows about intel_amx before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

namespace attune::backends::intel_amx {

inline constexpr BackendDescriptor kDescriptor{
    .name = "intel_amx",
    .summary = "AMX tile kernels for Xeon: packed prefill and latent decode, decode in place",
    .needs = "a CPU with AMX-BF16 whose tile state the operating system grants",
    .capabilities = {
        {.device = DeviceKind::cpu,
         .status = BackendStatus::experimental,
         .isa = CpuIsa::amx,
         .variants = {Variant::gqa},
         .phases = {Phase::prefill, Phase::decode},
         .q_dtypes = {DType::bf16},
         .kv_dtypes = {DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8},
         .kv_layouts = {KvLayout::hnd, KvLayout::nhd},
         .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                     Feature::alibi | Feature::custom_mask | Feature::cross_attention |
                     Feature::encoder_only | Feature::xai_temperature | Feature::attention_chunk |
                     Feature::kv_scales | Feature::per_head_scales | Feature::ragged_kv |
                     Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                     Feature::tree_verify | Feature::cascade | Feature::unequal_head_dims |
                     Feature::batch_invariant | Feature::deterministic | Feature::chunked_prefix},
        {.device = DeviceKind::cpu,
         .status = BackendStatus::experimental,
         .isa = CpuIsa::amx,
         .variants = {Variant::mla},
         .phases = {Phase::prefill, Phase::decode},
         .q_dtypes = {DType::bf16},
         .kv_dtypes = {DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8},
         .kv_layouts = {KvLayout::mla_latent},
         .features = Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks |
                     Feature::alibi | Feature::custom_mask | Feature::xai_temperature |
                     Feature::attention_chunk | Feature::kv_scales | Feature::ragged_kv |
                     Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                     Feature::tree_verify | Feature::cascade | Feature::batch_invariant |
                     Feature::deterministic | Feature::chunked_prefix}}};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::intel_amx
