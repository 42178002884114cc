// BackendDescriptor: all the world knows about a backend before it is loaded (layer attention).
// Selection, error texts, command-line help, docs and tests read this one table.
#pragma once

#include <cstdint>
#include <string_view>

#include <attune/batch.hpp>
#include <attune/device.hpp>
#include <attune/fixed_list.hpp>
#include <attune/spec.hpp>
#include <attune/tensor.hpp>

namespace attune {

/// One bit a capability that a spec, a batch or an engine may ask for.
enum class Feature : std::uint32_t {
  lse = 1u << 0,
  sliding_window = 1u << 1,
  soft_cap = 1u << 2,
  sinks = 1u << 3,
  alibi = 1u << 4,
  custom_mask = 1u << 5,
  cross_attention = 1u << 6,
  encoder_only = 1u << 7,
  xai_temperature = 1u << 8,
  attention_chunk = 1u << 9,
  kv_scales = 1u << 10,
  per_head_scales = 1u << 11,
  ragged_kv = 1u << 12,
  mixed_batch = 1u << 13,
  target_verify = 1u << 14,
  draft_extend = 1u << 15,
  tree_verify = 1u << 16,
  cascade =
      1u << 17,  ///< reads pages that BatchView::prefix_groups names once a group, where it pays
  unequal_head_dims = 1u << 18,
  cuda_graph = 1u << 19,
  device_planning = 1u << 20,
  batch_invariant = 1u << 21,
  deterministic = 1u << 22,
  chunked_prefix = 1u << 23,
  relative_bias = 1u << 24,
};

[[nodiscard]] constexpr std::string_view name(Feature f) {
  switch (f) {
    case Feature::lse: return "lse";
    case Feature::sliding_window: return "sliding_window";
    case Feature::soft_cap: return "soft_cap";
    case Feature::sinks: return "sinks";
    case Feature::alibi: return "alibi";
    case Feature::custom_mask: return "custom_mask";
    case Feature::cross_attention: return "cross_attention";
    case Feature::encoder_only: return "encoder_only";
    case Feature::xai_temperature: return "xai_temperature";
    case Feature::attention_chunk: return "attention_chunk";
    case Feature::kv_scales: return "kv_scales";
    case Feature::per_head_scales: return "per_head_scales";
    case Feature::ragged_kv: return "ragged_kv";
    case Feature::mixed_batch: return "mixed_batch";
    case Feature::target_verify: return "target_verify";
    case Feature::draft_extend: return "draft_extend";
    case Feature::tree_verify: return "tree_verify";
    case Feature::cascade: return "cascade";
    case Feature::unequal_head_dims: return "unequal_head_dims";
    case Feature::cuda_graph: return "cuda_graph";
    case Feature::device_planning: return "device_planning";
    case Feature::batch_invariant: return "batch_invariant";
    case Feature::deterministic: return "deterministic";
    case Feature::chunked_prefix: return "chunked_prefix";
    case Feature::relative_bias: return "relative_bias";
  }
  return "?";
}

inline constexpr Feature kAllFeatures[] = {Feature::lse,
                                           Feature::sliding_window,
                                           Feature::soft_cap,
                                           Feature::sinks,
                                           Feature::alibi,
                                           Feature::custom_mask,
                                           Feature::cross_attention,
                                           Feature::encoder_only,
                                           Feature::xai_temperature,
                                           Feature::attention_chunk,
                                           Feature::kv_scales,
                                           Feature::per_head_scales,
                                           Feature::ragged_kv,
                                           Feature::mixed_batch,
                                           Feature::target_verify,
                                           Feature::draft_extend,
                                           Feature::tree_verify,
                                           Feature::cascade,
                                           Feature::unequal_head_dims,
                                           Feature::cuda_graph,
                                           Feature::device_planning,
                                           Feature::batch_invariant,
                                           Feature::deterministic,
                                           Feature::chunked_prefix,
                                           Feature::relative_bias};

class FeatureSet {
 public:
  constexpr FeatureSet() = default;
  constexpr FeatureSet(Feature f)
      : bits_(static_cast<std::uint32_t>(f)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] constexpr bool has(Feature f) const {
    return (bits_ & static_cast<std::uint32_t>(f)) != 0;
  }
  [[nodiscard]] constexpr std::uint32_t bits() const { return bits_; }
  friend constexpr FeatureSet operator|(FeatureSet a, FeatureSet b) {
    FeatureSet r;
    r.bits_ = a.bits_ | b.bits_;
    return r;
  }

 private:
  std::uint32_t bits_ = 0;
};
[[nodiscard]] constexpr FeatureSet operator|(Feature a, Feature b) {
  return FeatureSet(a) | FeatureSet(b);
}

struct SmRange {
  int min = 0;  ///< 10 * major + minor
  int max = 0;
  [[nodiscard]] constexpr bool operator==(const SmRange&) const = default;
};

struct HeadDims {
  int qk = 0;
  int vo = 0;
  [[nodiscard]] constexpr bool operator==(const HeadDims&) const = default;
};

enum class BackendStatus : std::uint8_t {
  not_built,
  unproven,  ///< built and emulated, never run on its device: served by name, never chosen
  experimental,
  stable
};

[[nodiscard]] constexpr std::string_view name(BackendStatus s) {
  switch (s) {
    case BackendStatus::not_built: return "not_built";
    case BackendStatus::unproven: return "unproven";
    case BackendStatus::experimental: return "experimental";
    case BackendStatus::stable: return "stable";
  }
  return "?";
}

/// What one backend can do for some variants on one device kind. An empty list means "any" where
/// the comment says so.
struct Capability {
  DeviceKind device = DeviceKind::cpu;
  BackendStatus status = BackendStatus::not_built;  ///< of the kernels behind this row
  CpuIsa isa = CpuIsa::scalar;                      ///< CPU: least level
  FixedList<SmRange, 4> sm{};                       ///< CUDA: any of these
  FixedList<std::string_view, 4> archs{};           ///< HIP: any of these; empty = any
  FixedList<Variant, 6> variants{};
  FixedList<Phase, 2> phases{};
  FixedList<DType, 4> q_dtypes{};
  FixedList<DType, 8> kv_dtypes{};
  FixedList<HeadDims, 12> head_dims{};  ///< empty = any up to max_head_dim
  int max_head_dim = 0;                 ///< 0 = no limit
  int head_dim_multiple = 1;            ///< where head_dims is empty: of which both dims are
  FixedList<int, 8> gqa_group_sizes{};  ///< empty = any
  FixedList<std::int32_t, 10>
      page_sizes{};  ///< empty = any from 1 to 256; the first is the preferred one
  std::int32_t preferred_page_size = 1;  ///< where page_sizes is empty
  FixedList<KvLayout, 4>
      kv_layouts{};  ///< the first is the preferred one; empty for linear variants
  FeatureSet features{};
};

struct BackendDescriptor {
  std::string_view name;
  std::string_view summary;
  FixedList<std::string_view, 2> aliases{};
  FixedList<std::string_view, 2> deprecated_aliases{};
  std::string_view
      needs{};  ///< what a not_built backend waits for, and what any backend needs to run
  FixedList<Capability, 10> capabilities{};
  std::string_view paper{};  ///< paper or source of the method

  /// The best of its rows.
  [[nodiscard]] constexpr BackendStatus status() const {
    BackendStatus best = BackendStatus::not_built;
    for (const Capability& row : capabilities)
      if (row.status > best) best = row.status;
    return best;
  }
};

}  // namespace attune
