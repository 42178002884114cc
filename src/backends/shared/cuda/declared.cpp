#include "backends/shared/cuda/declared.hpp"

#include <algorithm>

#include "base/join.hpp"

namespace attune::backends::shared::cuda {
namespace {

using base::join;

bool is_built(const Capability& row) {
  return row.device == DeviceKind::cuda && row.status != BackendStatus::not_built;
}

/// What a spec asks of a row.
FeatureSet asked_features(const AttentionSpec& spec) {
  const struct {
    bool wanted;
    Feature feature;
  } options[] = {{spec.window_left >= 0 || spec.window_right >= 0, Feature::sliding_window},
                 {spec.logits_soft_cap > 0, Feature::soft_cap},
                 {spec.sinks, Feature::sinks},
                 {spec.attention_chunk > 0, Feature::attention_chunk},
                 {spec.xai_temperature_len > 0, Feature::xai_temperature},
                 {spec.alibi, Feature::alibi},
                 {spec.relative_bias, Feature::relative_bias},
                 {spec.custom_mask, Feature::custom_mask},
                 {spec.block_mask, Feature::block_mask},
                 {spec.score_mod, Feature::score_mod},
                 {spec.kind == AttentionKind::cross, Feature::cross_attention},
                 {spec.kind == AttentionKind::encoder_only, Feature::encoder_only},
                 {spec.head_dim_qk != spec.head_dim_vo, Feature::unequal_head_dims},
                 {spec.kv_scales, Feature::kv_scales},
                 {spec.per_head_scales, Feature::per_head_scales}};
  FeatureSet asked;
  for (const auto& option : options)
    if (option.wanted) asked = asked | option.feature;
  return asked;
}

bool has_dims(const Capability& row, HeadDims dims) {
  if (!row.head_dims.empty()) return row.head_dims.contains(dims);
  return dims.qk % row.head_dim_multiple == 0 && dims.vo % row.head_dim_multiple == 0 &&
         (row.max_head_dim == 0 || std::max(dims.qk, dims.vo) <= row.max_head_dim);
}

bool has_card(const Capability& row, int sm) {
  return std::any_of(row.sm.begin(), row.sm.end(),
                     [&](const SmRange& range) { return sm >= range.min && sm <= range.max; });
}

bool admits(const Capability& row, const BackendContext& context, int sm) {
  const AttentionSpec& spec = context.spec;
  return is_built(row) && has_card(row, sm) && row.q_dtypes.contains(spec.q_dtype) &&
         row.kv_dtypes.contains(spec.kv_dtype) &&
         has_dims(row, {spec.head_dim_qk, spec.head_dim_vo}) &&
         (row.gqa_group_sizes.empty() || row.gqa_group_sizes.contains(spec.gqa_group_size())) &&
         (row.page_sizes.empty() || row.page_sizes.contains(context.page_size)) &&
         row.kv_layouts.contains(context.kv_layout);
}

}  // namespace

FeatureSet declared_features(const BackendDescriptor& descriptor) {
  FeatureSet declared;
  for (const Capability& row : descriptor.capabilities)
    if (is_built(row)) declared = declared | row.features;
  return declared;
}

Status check_declared(const BackendDescriptor& descriptor, const BackendContext& context, int sm) {
  const AttentionSpec& spec = context.spec;
  const FeatureSet declared = declared_features(descriptor);
  const FeatureSet asked = asked_features(spec);
  for (const Feature feature : kAllFeatures)
    if (asked.has(feature) && !declared.has(feature))
      return unsupported(join(descriptor.name, " declares no ", name(feature)));
  const auto& rows = descriptor.capabilities;
  if (std::any_of(rows.begin(), rows.end(),
                  [&](const Capability& row) { return admits(row, context, sm); }))
    return {};
  return unsupported(join(descriptor.name, " declares no row on SM ", sm / 10, ".", sm % 10,
                          " for queries in ", name(spec.q_dtype), ", keys in ", name(spec.kv_dtype),
                          ", head dims ", spec.head_dim_qk, "/", spec.head_dim_vo, ", ",
                          spec.gqa_group_size(), " query heads a KV head and pages of ",
                          context.page_size, " in ", name(context.kv_layout)));
}

}  // namespace attune::backends::shared::cuda
