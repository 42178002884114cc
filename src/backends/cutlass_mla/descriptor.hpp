// All the world knows about cutlass_mla before it is loaded.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::cutlass_mla {

inline constexpr BackendDescriptor kDescriptor{
    .name = "cutlass_mla",
    .summary = "Latent-cache decode built from CUTLASS collectives for Blackwell",
    .needs = "a kernel in libattune_cuda.so for SM 10.0",
    .capabilities = {{.device = DeviceKind::cuda,
                      .sm = {{100, 103}},
                      .variants = {Variant::mla},
                      .phases = {Phase::decode},
                      .q_dtypes = {DType::bf16, DType::f16},
                      .kv_dtypes = {DType::bf16, DType::f16},
                      .head_dims = {{576, 512}},
                      .page_sizes = {128},
                      .kv_layouts = {KvLayout::mla_latent},
                      .features = Feature::lse | Feature::cuda_graph | Feature::chunked_prefix}},
    .paper = "CUTLASS example 77",
};

/// Makes it on a CPU; null while nothing is built. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = nullptr;

}  // namespace attune::backends::cutlass_mla
