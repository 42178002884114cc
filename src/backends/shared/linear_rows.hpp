// The rows of the linear families' descriptors: they differ in their variant, and in the devices
// they are kept free for.
#pragma once

#include <attune/descriptor.hpp>
#include <attune/tensor.hpp>

namespace attune::backends::shared {

/// Of this library's kernels on any CPU.
[[nodiscard]] constexpr Capability linear_cpu_row(Variant variant) {
  return {.device = DeviceKind::cpu,
          .status = BackendStatus::stable,
          .variants = {variant},
          .phases = {Phase::prefill, Phase::decode},
          .q_dtypes = {DType::f32, DType::bf16},
          .kv_dtypes = {DType::f32},
          .features = Feature::mixed_batch | Feature::target_verify | Feature::draft_extend |
                      Feature::deterministic | Feature::batch_invariant};
}

/// Of this library's kernels for Hopper.
[[nodiscard]] constexpr Capability linear_hopper_row(Variant variant) {
  Capability row = linear_cpu_row(variant);
  row.device = DeviceKind::cuda;
  row.status = BackendStatus::experimental;
  row.sm = {{90, 90}};
  row.features = row.features | Feature::cuda_graph;
  return row;
}

/// Of kernels that are not built: a plugin may bring them.
[[nodiscard]] constexpr Capability linear_outside_row(Variant variant, DeviceKind device) {
  Capability row{.device = device,
                 .variants = {variant},
                 .phases = {Phase::prefill, Phase::decode},
                 .q_dtypes = {DType::bf16, DType::f16},
                 .kv_dtypes = {DType::f32, DType::bf16},
                 .features = Feature::mixed_batch | Feature::target_verify | Feature::cuda_graph};
  if (device == DeviceKind::cuda) row.sm = {{75, 121}};
  return row;
}

}  // namespace attune::backends::shared
