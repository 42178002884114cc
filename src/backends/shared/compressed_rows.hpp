// What CPU backends declare of compressed attention: all serve it by the same calls.
#pragma once

#include <attune/descriptor.hpp>

namespace attune::backends::shared {

inline constexpr Capability kCompressed{
    .device = DeviceKind::cpu,
    .status = BackendStatus::stable,
    .variants = {Variant::dsv4},
    .phases = {Phase::prefill, Phase::decode},
    .q_dtypes = {DType::f32, DType::bf16, DType::f16},
    .kv_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2},
    .preferred_page_size = 256,
    .kv_layouts = {KvLayout::mla_latent},
    .features = Feature::lse | Feature::sliding_window | Feature::sinks | Feature::mixed_batch |
                Feature::target_verify | Feature::draft_extend | Feature::batch_invariant |
                Feature::deterministic | Feature::chunked_prefix};

/// Of a name that also reads keys where their tokens lie.
[[nodiscard]] constexpr Capability with_ragged(Capability row) {
  row.features = row.features | Feature::ragged_kv;
  return row;
}
inline constexpr Capability kCompressedWithRagged = with_ragged(kCompressed);

}  // namespace attune::backends::shared
