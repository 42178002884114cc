// All the world knows about flex_attention before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

namespace attune::backends::flex_attention {

inline constexpr BackendDescriptor kDescriptor{
    .name = "flex_attention",
    .summary = "The program's own functions on logits, and masks by blocks of its own",
    .needs = "nothing on CPUs; a kernel in libattune_cuda.so",
    .capabilities = {{.device = DeviceKind::cpu,
                      .status = BackendStatus::stable,
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::f32, DType::bf16, DType::f16},
                      .kv_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3,
                                    DType::fp8_e5m2, DType::i8},
                      .preferred_page_size = 16,
                      .kv_layouts = {KvLayout::hnd, KvLayout::nhd},
                      .features =
                          Feature::lse | Feature::sliding_window | Feature::soft_cap |
                          Feature::sinks | Feature::alibi | Feature::custom_mask |
                          Feature::cross_attention | Feature::encoder_only |
                          Feature::xai_temperature | Feature::attention_chunk | Feature::kv_scales |
                          Feature::per_head_scales | Feature::ragged_kv | Feature::mixed_batch |
                          Feature::unequal_head_dims | Feature::deterministic |
                          Feature::chunked_prefix | Feature::block_mask | Feature::score_mod},
                     {.device = DeviceKind::cuda,
                      .sm = {{80, 121}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::lse | Feature::mixed_batch | Feature::block_mask}},
    .paper = "FlexAttention, arXiv:2412.05496",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::flex_attention
