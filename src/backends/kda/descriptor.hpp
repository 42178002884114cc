// All the world knows about kda before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

namespace attune::backends::kda {

inline constexpr BackendDescriptor kDescriptor{
    .name = "kda",
    .summary = "Kimi delta attention: a decay for each channel",
    .needs = "a kernel in libattune_cuda.so; libraries for the other devices",
    .capabilities =
        {{.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {Variant::kda},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16},
          .kv_dtypes = {DType::f32},
          .features = Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                      Feature::deterministic | Feature::batch_invariant},
         {.device = DeviceKind::cuda,
          .status = BackendStatus::experimental,
          .sm = {{90, 90}},
          .variants = {Variant::kda},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16},
          .kv_dtypes = {DType::f32},
          .features = Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                      Feature::cuda_graph | Feature::deterministic | Feature::batch_invariant},
         {.device = DeviceKind::cuda,
          .sm = {{75, 121}},
          .variants = {Variant::kda},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::f32, DType::bf16},
          .features = Feature::mixed_batch | Feature::target_verify | Feature::cuda_graph},
         {.device = DeviceKind::hip,
          .variants = {Variant::kda},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::f32, DType::bf16},
          .features = Feature::mixed_batch | Feature::target_verify | Feature::cuda_graph},
         {.device = DeviceKind::xpu,
          .variants = {Variant::kda},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::f32, DType::bf16},
          .features = Feature::mixed_batch | Feature::target_verify | Feature::cuda_graph},
         {.device = DeviceKind::npu,
          .variants = {Variant::kda},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::f32, DType::bf16},
          .features = Feature::mixed_batch | Feature::target_verify | Feature::cuda_graph}},
    .paper = "Kimi Linear, arXiv:2510.26692",
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU. Rows of an accelerator are made by its library.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::kda
