// All the world knows about dsv4 before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::dsv4 {

/// Of the kernels this project has; the other rows are what the method could serve.
inline constexpr FeatureSet kBuilt = Feature::lse | Feature::sliding_window | Feature::sinks |
                                     Feature::mixed_batch | Feature::target_verify |
                                     Feature::draft_extend | Feature::cuda_graph |
                                     Feature::deterministic | Feature::chunked_prefix;

/// Queries and keys of one 16-bit type.
[[nodiscard]] constexpr Capability built_row(DType type) {
  return {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{90, 90}},
          .variants = {Variant::dsv4},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {type},
          .kv_dtypes = {type},
          .max_head_dim = 576,
          .head_dim_multiple = 8,
          .preferred_page_size = 256,
          .kv_layouts = {KvLayout::mla_latent},
          .features = kBuilt};
}

inline constexpr BackendDescriptor kDescriptor{
    .name = "dsv4",
    .summary =
        "DeepSeek-V4: a short window, and keys compressed 4 to 1 behind an indexer or 128 to 1",
    .deprecated_aliases = {"compressed"},
    .needs =
        "libattune_cuda.so and a Hopper GPU (compute capability 9.0); libraries for HIP and NPU",
    .capabilities =
        {built_row(DType::bf16),
         built_row(DType::f16),
         {.device = DeviceKind::cuda,
          .sm = {{90, 121}},
          .variants = {Variant::dsv4},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::fp8_e4m3, DType::bf16},
          .head_dims = {{512, 512}},
          .page_sizes = {256},
          .kv_layouts = {KvLayout::nhd},
          .features = Feature::sliding_window | Feature::sinks | Feature::target_verify |
                      Feature::draft_extend | Feature::cuda_graph | Feature::mixed_batch},
         {.device = DeviceKind::hip,
          .variants = {Variant::dsv4},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::fp8_e4m3, DType::bf16},
          .head_dims = {{512, 512}},
          .page_sizes = {256},
          .kv_layouts = {KvLayout::nhd},
          .features = Feature::sliding_window | Feature::sinks | Feature::target_verify |
                      Feature::draft_extend | Feature::cuda_graph | Feature::mixed_batch},
         {.device = DeviceKind::npu,
          .variants = {Variant::dsv4},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16},
          .head_dims = {{512, 512}},
          .page_sizes = {128},
          .kv_layouts = {KvLayout::nhd},
          .features = Feature::sliding_window | Feature::sinks | Feature::target_verify |
                      Feature::draft_extend | Feature::cuda_graph | Feature::mixed_batch}},
    .paper = "DeepSeek-V4",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::dsv4
