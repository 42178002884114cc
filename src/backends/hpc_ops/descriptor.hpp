// All the world knows about hpc_ops before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::hpc_ops {

inline constexpr BackendDescriptor kDescriptor{
    .name = "hpc_ops",
    .summary =
        "HPC-Ops' contract on Hopper, head dim 128 in groups of 4 or 8, by flashinfer's "
        "kernels",
    .needs = "libattune_cuda.so and a Hopper GPU (compute capability 9.0)",
    .capabilities = {{.device = DeviceKind::cuda,
                      .status = BackendStatus::experimental,
                      .sm = {{90, 90}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::bf16},
                      .kv_dtypes = {DType::bf16, DType::fp8_e4m3},
                      .head_dims = {{128, 128}},
                      .gqa_group_sizes = {4, 8},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::lse | Feature::kv_scales | Feature::mixed_batch |
                                  Feature::cuda_graph | Feature::device_planning |
                                  Feature::chunked_prefix}},
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::hpc_ops
