// All the world knows about dual_chunk_flash_attn before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::dual_chunk_flash_attn {

inline constexpr FeatureSet kFeatures =
    Feature::lse | Feature::kv_scales | Feature::per_head_scales | Feature::mixed_batch |
    Feature::target_verify | Feature::draft_extend | Feature::unequal_head_dims |
    Feature::cuda_graph | Feature::deterministic | Feature::chunked_prefix;

/// 16-bit keys are of q's type.
inline constexpr Capability half_row(DType type) {
  return {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{80, 121}},
          .variants = {Variant::dual_chunk},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {type},
          .kv_dtypes = {type},
          .max_head_dim = 256,
          .head_dim_multiple = 8,
          .preferred_page_size = 64,
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kFeatures};
}

inline constexpr BackendDescriptor kDescriptor{
    .name = "dual_chunk_flash_attn",
    .summary = "Qwen2.5-1M: own chunk, previous chunk and earlier chunks, merged by log-sum-exp",
    .needs = "libattune_cuda.so and a GPU of compute capability 8.0 or newer",
    .capabilities = {half_row(DType::bf16),
                     half_row(DType::f16),
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{80, 121}},
                      .variants = {Variant::dual_chunk},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::fp8_e4m3, DType::fp8_e5m2},
                      .head_dims = {{64, 64}, {128, 128}, {256, 256}},
                      .preferred_page_size = 64,
                      .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
                      .features = kFeatures}},
    .paper = "Dual chunk attention, arXiv:2402.17463",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::dual_chunk_flash_attn
