// All the world knows about trtllm_mha before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::trtllm_mha {

inline constexpr FeatureSet kFeatures =
    Feature::lse | Feature::sliding_window | Feature::sinks | Feature::kv_scales |
    Feature::mixed_batch | Feature::target_verify | Feature::draft_extend | Feature::cuda_graph;

/// Of the kernels this project has, for Hopper.
inline constexpr FeatureSet kBuilt = kFeatures | Feature::device_planning | Feature::chunked_prefix;

inline constexpr FixedList<std::int32_t, 10> kPageSizes = {64, 16, 32};

/// 16-bit keys are of q's type.
[[nodiscard]] constexpr Capability half_row(DType type) {
  return {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{90, 90}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {type},
          .kv_dtypes = {type},
          .max_head_dim = 256,
          .head_dim_multiple = 8,
          .page_sizes = kPageSizes,
          .kv_layouts = {KvLayout::hnd},
          .features = kBuilt};
}

inline constexpr BackendDescriptor kDescriptor{
    .name = "trtllm_mha",
    .summary =
        "XQA's contract on Hopper by flashinfer's kernels; for Blackwell, tensor memory to "
        "come",
    .needs = "libattune_cuda.so and a Hopper GPU; a kernel for SM 10.0 or 12.0 on Blackwell",
    .capabilities = {half_row(DType::bf16),
                     half_row(DType::f16),
                     {.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{90, 90}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::fp8_e4m3},
                      .head_dims = {{64, 64}, {128, 128}, {256, 256}},
                      .page_sizes = kPageSizes,
                      .kv_layouts = {KvLayout::hnd},
                      .features = kBuilt},
                     {.device = DeviceKind::cuda,
                      .sm = {{90, 90}, {100, 103}, {120, 121}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .page_sizes = kPageSizes,
                      .kv_layouts = {KvLayout::hnd},
                      .features = kFeatures},
                     {.device = DeviceKind::cuda,
                      .sm = {{100, 103}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .gqa_group_sizes = {2, 4, 8, 16, 32, 64},
                      .page_sizes = {128},
                      .kv_layouts = {KvLayout::hnd},
                      .features = kFeatures}},
    .paper = "TensorRT-LLM XQA",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::trtllm_mha
