// All the world knows about minimax_sparse before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::minimax_sparse {

inline constexpr BackendDescriptor kDescriptor{
    .name = "minimax_sparse",
    .summary = "MiniMax-M3: block indexer, top blocks, GQA on the kept blocks",
    .needs = "a kernel in libattune_cuda.so; a library for HIP",
    .capabilities = {{.device = DeviceKind::cuda,
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
