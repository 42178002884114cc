// What a row declares and what a case exercises of it, in the same words.
#include <algorithm>

#include "base/join.hpp"
#include "conformance/cases.hpp"

namespace attune::conformance {
namespace {

using base::join;

struct NamedFeature {
  Feature feature;
  std::string_view name;
};

constexpr NamedFeature kFeatures[] = {
    {Feature::lse, "lse"},
    {Feature::sliding_window, "sliding_window"},
    {Feature::soft_cap, "soft_cap"},
    {Feature::sinks, "sinks"},
    {Feature::alibi, "alibi"},
    {Feature::custom_mask, "custom_mask"},
    {Feature::cross_attention, "cross_attention"},
    {Feature::encoder_only, "encoder_only"},
    {Feature::xai_temperature, "xai_temperature"},
    {Feature::attention_chunk, "attention_chunk"},
    {Feature::kv_scales, "kv_scales"},
    {Feature::per_head_scales, "per_head_scales"},
    {Feature::ragged_kv, "ragged_kv"},
    {Feature::mixed_batch, "mixed_batch"},
    {Feature::target_verify, "target_verify"},
    {Feature::draft_extend, "draft_extend"},
    {Feature::tree_verify, "tree_verify"},
    {Feature::cascade, "cascade"},
    {Feature::unequal_head_dims, "unequal_head_dims"},
    {Feature::cuda_graph, "cuda_graph"},
    {Feature::device_planning, "device_planning"},
    {Feature::batch_invariant, "batch_invariant"},
    {Feature::deterministic, "deterministic"},
    {Feature::chunked_prefix, "chunked_prefix"},
    {Feature::relative_bias, "relative_bias"},
    {Feature::block_mask, "block_mask"},
    {Feature::score_mod, "score_mod"},
};

}  // namespace

std::string hardware_reason(const Capability& row, const DeviceInfo& device) {
  if (row.device != device.kind)
    return join("needs ", name(row.device), ", have ", name(device.kind));
  if (row.status == BackendStatus::not_built) return "not built";
  if (row.device == DeviceKind::cpu && device.isa < row.isa)
    return join("needs ", name(row.isa), ", have ", name(device.isa));
  if (row.device == DeviceKind::cuda && !row.sm.empty() &&
      std::none_of(row.sm.begin(), row.sm.end(),
                   [&](const SmRange& r) { return device.sm >= r.min && device.sm <= r.max; }))
    return join("needs another GPU than sm ", device.sm);
  return {};
}

std::set<std::string> declared_by(const Capability& row) {
  std::set<std::string> words;
  for (const Variant variant : row.variants) {
    const auto add = [&](std::string_view field, const auto& value) {
      words.insert(join(name(row.device), "/", name(variant), "/", field, " ", value));
    };
    for (const Phase p : row.phases) add("phase", name(p));
    for (const DType t : row.q_dtypes) add("q_dtype", name(t));
    for (const DType t : row.kv_dtypes) add("kv_dtype", name(t));
    for (const HeadDims& d : row.head_dims) add("head_dim", join(d.qk, "x", d.vo));
    for (const int g : row.gqa_group_sizes) add("gqa_group_size", g);
    for (const std::int32_t p : row.page_sizes) add("page_size", p);
    for (const KvLayout l : row.kv_layouts) add("kv_layout", name(l));
    for (const NamedFeature& f : kFeatures)
      if (row.features.has(f.feature)) add("feature", f.name);
  }
  return words;
}

std::set<std::string> exercised_by(const Case& one, const Capability& row) {
  std::set<std::string> words;
  const AttentionSpec& s = one.spec;
  const auto add = [&](std::string_view field, const auto& value) {
    words.insert(join(name(row.device), "/", name(s.variant), "/", field, " ", value));
  };
  add("phase", name(phase_of(one)));
  add("q_dtype", name(s.q_dtype));
  add("kv_dtype", name(s.kv_dtype));
  add("head_dim", join(s.head_dim_qk, "x", s.head_dim_vo));
  add("gqa_group_size", s.gqa_group_size());
  if (one.source == KvSource::paged) {
    add("page_size", one.page_size);
    add("kv_layout", name(one.layout));
  }
  const FeatureSet used = features_of(one);
  for (const NamedFeature& f : kFeatures)
    if (used.has(f.feature)) add("feature", f.name);
  std::set<std::string> declared = declared_by(row);
  std::erase_if(words, [&](const std::string& word) { return !declared.contains(word); });
  return words;
}

}  // namespace attune::conformance
