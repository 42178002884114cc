// All the world knows about flex_attention before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

namespace attune::backends::flex_attention {

/// A function of the host's on logits cannot run on a card; its mask is data by then.
inline constexpr FeatureSet kCudaFeatures =
    Feature::lse | Feature::sliding_window | Feature::soft_cap | Feature::sinks | Feature::alibi |
    Feature::custom_mask | Feature::cross_attention | Feature::encoder_only | Feature::kv_scales |
    Feature::per_head_scales | Feature::ragged_kv | Feature::mixed_batch |
    Feature::unequal_head_dims | Feature::cuda_graph | Feature::deterministic |
    Feature::chunked_prefix | Feature::block_mask;

/// Cards that give a block 160 KB of shared memory, which heads of 256 take.
inline constexpr FixedList<SmRange, 4> kSm = {{80, 80}, {90, 110}};

/// 16-bit keys are of q's type.
[[nodiscard]] constexpr Capability half_row(DType type) {
  return {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = kSm,
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {type},
          .kv_dtypes = {type},
          .max_head_dim = 256,
          .head_dim_multiple = 8,
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kCudaFeatures};
}

inline constexpr BackendDescriptor kDescriptor{
    .name = "flex_attention",
    .summary = "The program's own functions on logits, and masks by blocks of its own",
    .needs =
        "nothing on CPUs; libattune_cuda.so and a GPU of compute capability 8.0 or 9.0 to 11.0",
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
                     half_row(DType::bf16),
                     half_row(DType::f16),
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = kSm,
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::fp8_e4m3, DType::fp8_e5m2},
                      .head_dims = {{64, 64}, {128, 128}, {256, 256}},
                      .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
                      .features = kCudaFeatures}},
    .paper = "FlexAttention, arXiv:2412.05496",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::flex_attention
