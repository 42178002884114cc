// All the world knows about minimax_sparse before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::minimax_sparse {

/// Of the kernels this project has; the other rows are what the method could serve.
inline constexpr FeatureSet kBuilt = Feature::lse | Feature::kv_scales | Feature::per_head_scales |
                                     Feature::mixed_batch | Feature::target_verify |
                                     Feature::draft_extend | Feature::cuda_graph |
                                     Feature::deterministic | Feature::chunked_prefix;

/// A block of MiniMax-M3's first: then the dense layers beside it agree on that, too.
inline constexpr FixedList<std::int32_t, 10> kPageSizes = {128, 256, 64, 32, 16, 8};

/// Queries, keys and index keys of one 16-bit type.
[[nodiscard]] constexpr Capability built_row(DType type) {
  return {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{90, 90}},
          .variants = {Variant::minimax_sparse},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {type},
          .kv_dtypes = {type},
          .max_head_dim = 128,
          .head_dim_multiple = 8,
          .page_sizes = kPageSizes,
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = kBuilt};
}

inline constexpr BackendDescriptor kDescriptor{
    .name = "minimax_sparse",
    .summary = "MiniMax-M3: block indexer, top blocks, GQA on the kept blocks",
    .needs = "libattune_cuda.so and a Hopper GPU (compute capability 9.0); a library for HIP",
    .capabilities = {built_row(DType::bf16),
                     built_row(DType::f16),
                     {.device = DeviceKind::cuda,
                      .sm = {{80, 121}},
                      .variants = {Variant::minimax_sparse},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .page_sizes = {128},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::cuda_graph | Feature::kv_scales | Feature::mixed_batch},
                     {.device = DeviceKind::hip,
                      .variants = {Variant::minimax_sparse},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::cuda_graph | Feature::kv_scales | Feature::mixed_batch}},
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::minimax_sparse
