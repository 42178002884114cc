// BackendDescriptor: everything known about a backend before it is loaded (layer attention).
// Selection, error texts, command-line help, the docs and the tests all read this one table.
//
// A promise is kept or it is not made: what no row of a descriptor names is refused by the registry
// with the reason, and `attune verify` makes a test case of everything that one does name.
// examples/plugin/plain.cpp has a small descriptor, docs/adding-a-backend.md tells how to write one.
#pragma once

#include <cstdint>
#include <string_view>

#include <attune/batch.hpp>
#include <attune/device.hpp>
#include <attune/fixed_list.hpp>
#include <attune/spec.hpp>
#include <attune/tensor.hpp>

namespace attune {

/// Capabilities that a spec, a batch or an engine may ask for, one bit each.
enum class Feature : std::uint32_t {
  lse = 1u << 0,               ///< writes LayerCall::lse
  sliding_window = 1u << 1,    ///< AttentionSpec::window_left, window_right
  soft_cap = 1u << 2,          ///< AttentionSpec::logits_soft_cap
  sinks = 1u << 3,             ///< LayerCall::sinks
  alibi = 1u << 4,             ///< LayerCall::alibi_slopes
  custom_mask = 1u << 5,       ///< BatchView::custom_mask
  cross_attention = 1u << 6,   ///< AttentionKind::cross
  encoder_only = 1u << 7,      ///< AttentionKind::encoder_only
  xai_temperature = 1u << 8,   ///< AttentionSpec::xai_temperature_len
  attention_chunk = 1u << 9,   ///< AttentionSpec::attention_chunk
  kv_scales = 1u << 10,        ///< LayerCall::k_scale, v_scale
  per_head_scales = 1u << 11,  ///< LayerCall::k_scale_per_head, v_scale_per_head
  ragged_kv = 1u << 12,        ///< KvSource::ragged
  mixed_batch = 1u << 13,      ///< BatchForm::mixed
  target_verify = 1u << 14,    ///< BatchForm::target_verify over chains of drafts
  draft_extend = 1u << 15,     ///< BatchForm::draft_extend
  tree_verify = 1u << 16,      ///< … and over trees (<attune/draft_tree.hpp>)
  /// Reads the pages that BatchView::prefix_groups names once a group, where that pays.
  cascade = 1u << 17,
  unequal_head_dims = 1u << 18,  ///< head_dim_qk != head_dim_vo
  cuda_graph = 1u << 19,         ///< append_kv and run may be recorded, refresh makes them current
  device_planning = 1u << 20,    ///< BatchView::on_device
  batch_invariant = 1u << 21,    ///< BackendContext::batch_invariant
  deterministic = 1u << 22,      ///< the same input twice gives the same bits
  chunked_prefix = 1u << 23,     ///< extend batches whose requests have keys already
  relative_bias = 1u << 24,      ///< AttentionSpec::relative_bias
  block_mask = 1u << 25,         ///< BatchView::block_mask
  score_mod = 1u << 26,          ///< LayerCall::score_mod
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
    case Feature::block_mask: return "block_mask";
    case Feature::score_mod: return "score_mod";
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
                                           Feature::relative_bias,
                                           Feature::block_mask,
                                           Feature::score_mod};

/// `Feature::lse | Feature::sinks`.
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

/// CUDA compute capabilities, both ends included, as 10 * major + minor: {90, 90} is Hopper.
struct SmRange {
  int min = 0;
  int max = 0;
  [[nodiscard]] constexpr bool operator==(const SmRange&) const = default;
};

/// A pair of widths that a kernel exists for.
struct HeadDims {
  int qk = 0;  ///< of queries and keys
  int vo = 0;  ///< of values and outputs
  [[nodiscard]] constexpr bool operator==(const HeadDims&) const = default;
};

/// How far the kernels behind a row have come. Selection passes over not_built and unproven rows.
enum class BackendStatus : std::uint8_t {
  not_built,     ///< described, so that it can be explained; there is no kernel
  unproven,      ///< built and emulated, never run on its device: served by name, never chosen
  experimental,  ///< has run on its device
  stable,
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

/// What one backend can do for some variants on one kind of device. A request is served where some
/// row admits all of it. An empty list admits nothing unless its comment says "any".
struct Capability {
  DeviceKind device = DeviceKind::cpu;
  BackendStatus status = BackendStatus::not_built;  ///< of the kernels behind this row
  CpuIsa isa = CpuIsa::scalar;                      ///< CPU: the least level that runs it
  FixedList<SmRange, 4> sm{};                       ///< CUDA: any of these
  FixedList<std::string_view, 4> archs{};           ///< HIP: any of these; empty = any
  FixedList<Variant, 6> variants{};
  FixedList<Phase, 2> phases{};
  FixedList<DType, 4> q_dtypes{};       ///< of q and o; o beside q in fp8_e4m3 is bf16
  FixedList<DType, 8> kv_dtypes{};      ///< of the cache; linear variants: of the state
  FixedList<HeadDims, 12> head_dims{};  ///< empty = any up to max_head_dim
  int max_head_dim = 0;                 ///< where head_dims is empty; 0 = no limit
  int head_dim_multiple = 1;            ///< where head_dims is empty: both dims are multiples of it
  FixedList<int, 8> gqa_group_sizes{};  ///< query heads for each KV head; empty = any
  FixedList<std::int32_t, 10> page_sizes{};  ///< the first is preferred; empty = any from 1 to 256
  std::int32_t preferred_page_size = 1;      ///< where page_sizes is empty
  FixedList<KvLayout, 4> kv_layouts{};       ///< the first is preferred; empty for linear variants
  FeatureSet features{};
};

/// A backend and its rows. Texts are literals: a descriptor lives as long as the process.
struct BackendDescriptor {
  std::string_view name;     ///< the word of --attention-backend; unique in a registry
  std::string_view summary;  ///< one line, without a full stop
  FixedList<std::string_view, 2> aliases{};             ///< other words for it
  FixedList<std::string_view, 2> deprecated_aliases{};  ///< … that draw a warning
  std::string_view needs{};  ///< what it needs to run, or what a not_built one waits for
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
