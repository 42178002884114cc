// All the world knows about dsa before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::dsa {

/// Of the kernels this project has; the other rows are what the method could serve.
inline constexpr FeatureSet kBuilt =
    Feature::lse | Feature::kv_scales | Feature::mixed_batch | Feature::target_verify |
    Feature::draft_extend | Feature::cuda_graph | Feature::deterministic | Feature::chunked_prefix;

/// Queries and latents of one 16-bit type.
[[nodiscard]] constexpr Capability built_row(DType type) {
  return {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{90, 90}},
          .variants = {Variant::sparse_mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {type},
          .kv_dtypes = {type},
          .max_head_dim = 576,
          .head_dim_multiple = 8,
          .preferred_page_size = 64,
          .kv_layouts = {KvLayout::mla_latent},
          .features = kBuilt};
}

/// bf16 queries over the fp8 cache, 656 bytes a token.
inline constexpr Capability kPackedRow{.device = DeviceKind::cuda,
                                       .status = BackendStatus::experimental,
                                       .sm = {{90, 90}},
                                       .variants = {Variant::sparse_mla},
                                       .phases = {Phase::prefill, Phase::decode},
                                       .q_dtypes = {DType::bf16},
                                       .kv_dtypes = {DType::fp8_e4m3},
                                       .head_dims = {{576, 512}},
                                       .preferred_page_size = 64,
                                       .kv_layouts = {KvLayout::mla_latent_fp8},
                                       .features = kBuilt};

inline constexpr BackendDescriptor kDescriptor{
    .name = "dsa",
    .summary =
        "DeepSeek sparse attention: lightning indexer, top-k, latent attention on the kept keys",
    .deprecated_aliases = {"nsa"},
    .needs = "libattune_cuda.so and a Hopper GPU (compute capability 9.0); a library for HIP",
    .capabilities = {built_row(DType::bf16),
                     built_row(DType::f16),
                     kPackedRow,
                     {.device = DeviceKind::cuda,
                      .sm = {{90, 90}, {100, 103}, {120, 121}},
                      .variants = {Variant::sparse_mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph | Feature::mixed_batch},
                     {.device = DeviceKind::cuda,
                      .sm = {{90, 90}, {100, 103}, {120, 121}},
                      .variants = {Variant::sparse_mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::fp8_e4m3},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::mla_latent_fp8},
                      .features = Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph | Feature::mixed_batch | Feature::kv_scales},
                     {.device = DeviceKind::hip,
                      .variants = {Variant::sparse_mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64, 1},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph | Feature::mixed_batch}},
    .paper = "DeepSeek-V3.2, arXiv:2512.02556",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::dsa
