// All the world knows about dual_chunk_flash_attn before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::dual_chunk_flash_attn {

inline constexpr BackendDescriptor kDescriptor{
    .name = "dual_chunk_flash_attn",
    .summary = "Qwen2.5-1M: own chunk, previous chunk and earlier chunks, merged by log-sum-exp",
    .needs = "a kernel in libattune_cuda.so",
    .capabilities = {{.device = DeviceKind::cuda,
                      .sm = {{80, 90}},
                      .variants = {Variant::dual_chunk},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .max_head_dim = 256,
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::lse | Feature::cuda_graph}},
    .paper = "Dual chunk attention, arXiv:2402.17463",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::dual_chunk_flash_attn
