// All the world knows about flex_attention before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::flex_attention {

inline constexpr BackendDescriptor kDescriptor{
    .name = "flex_attention",
    .summary = "Block masks compiled per request: causal self attention only",
    .needs = "a kernel in libattune_cuda.so",
    .capabilities = {{.device = DeviceKind::cuda,
                      .sm = {{80, 121}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::lse | Feature::mixed_batch}},
    .paper = "FlexAttention, arXiv:2412.05496",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::flex_attention
