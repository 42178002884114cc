// All the world knows about trtllm_mla before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::trtllm_mla {

inline constexpr BackendDescriptor kDescriptor{
    .name = "trtllm_mla",
    .summary = "Hand-scheduled latent-cache kernels for Blackwell",
    .needs = "a kernel in libattune_cuda.so for SM 10.0",
    .capabilities = {{.device = DeviceKind::cuda,
                      .sm = {{100, 103}},
                      .variants = {Variant::mla},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::fp8_e4m3},
                      .head_dims = {{576, 512}},
                      .page_sizes = {64, 32},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::lse | Feature::kv_scales | Feature::ragged_kv |
                                  Feature::mixed_batch | Feature::target_verify |
                                  Feature::draft_extend | Feature::cuda_graph |
                                  Feature::chunked_prefix}},
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::trtllm_mla
