// All the world knows about torch_native before it is loaded.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/status.hpp>

namespace attune::backends::torch_native {

inline constexpr BackendDescriptor kDescriptor{
    .name = "torch_native",
    .summary = "Per-request attention on library matrix products, without paging tricks",
    .needs = "oneDNN on CPUs; cuBLASLt on CUDA",
    .capabilities =
        {{.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16, DType::f16},
          .kv_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2,
                        DType::i8},
          .kv_layouts = {KvLayout::nhd, KvLayout::hnd},
          .features = Feature::lse | Feature::sliding_window | Feature::custom_mask |
                      Feature::kv_scales | Feature::deterministic | Feature::cross_attention |
                      Feature::encoder_only | Feature::ragged_kv | Feature::mixed_batch |
                      Feature::unequal_head_dims | Feature::chunked_prefix},
         {.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16, DType::f16},
          .kv_dtypes = {DType::fp8_e4m3},
          .head_dims = {{576, 512}},
          .kv_layouts = {KvLayout::mla_latent_fp8},
          .features = Feature::lse | Feature::sliding_window | Feature::custom_mask |
                      Feature::kv_scales | Feature::deterministic | Feature::mixed_batch},
         {.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {Variant::mla},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16, DType::f16},
          .kv_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2,
                        DType::i8},
          .kv_layouts = {KvLayout::mla_latent},
          .features = Feature::lse | Feature::sliding_window | Feature::custom_mask |
                      Feature::kv_scales | Feature::deterministic | Feature::ragged_kv |
                      Feature::mixed_batch | Feature::chunked_prefix},
         {.device = DeviceKind::cuda,
          .sm = {{75, 121}},
          .variants = {Variant::gqa},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::bf16, DType::f16},
          .kv_dtypes = {DType::bf16, DType::f16},
          .kv_layouts = {KvLayout::nhd},
          .features = Feature::lse | Feature::sliding_window | Feature::custom_mask |
                      Feature::cross_attention | Feature::encoder_only | Feature::ragged_kv |
                      Feature::mixed_batch | Feature::unequal_head_dims | Feature::chunked_prefix}},
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context);

/// Makes it on a CPU.
inline constexpr BackendFactory kMake = &make;

}  // namespace attune::backends::torch_native
