// All the world knows about trtllm_mha before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::trtllm_mha {

inline constexpr BackendDescriptor kDescriptor{
    .name = "trtllm_mha",
    .summary = "Hand-scheduled GQA kernels: XQA on Hopper, tensor-memory ones on Blackwell",
    .needs = "a kernel in libattune_cuda.so",
    .capabilities = {{.device = DeviceKind::cuda,
                      .sm = {{90, 90}, {100, 103}, {120, 121}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .page_sizes = {64, 16, 32},
                      .kv_layouts = {KvLayout::hnd},
                      .features = Feature::lse | Feature::sliding_window | Feature::sinks |
                                  Feature::kv_scales | Feature::mixed_batch |
                                  Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph},
                     {.device = DeviceKind::cuda,
                      .sm = {{100, 103}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16, DType::fp8_e4m3},
                      .gqa_group_sizes = {2, 4, 8, 16, 32, 64},
                      .page_sizes = {128},
                      .kv_layouts = {KvLayout::hnd},
                      .features = Feature::lse | Feature::sliding_window | Feature::sinks |
                                  Feature::kv_scales | Feature::mixed_batch |
                                  Feature::target_verify | Feature::draft_extend |
                                  Feature::cuda_graph}},
    .paper = "TensorRT-LLM XQA",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::trtllm_mha
