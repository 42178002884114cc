#include "conformance/hard_cases.hpp"

#include <utility>

#include "conformance/properties.hpp"

namespace attune::conformance {

void HardCases::shared_prefixes(BatchForm form) {
  std::vector<RequestShape> tails;
  const bool wide = !is_latent(variant_);
  for (std::int32_t i = 0; i < (wide ? 14 : 6); ++i) {
    // The first has nothing but its prefix.
    const std::int32_t own = i * 37 % 111;
    const bool decodes = form == BatchForm::decode || (form == BatchForm::mixed && i % 3 != 0);
    tails.push_back({decodes ? 1 : 1 + i % 5, own});
  }
  const FeatureSet cascade = has(Feature::cascade) ? FeatureSet(Feature::cascade) : FeatureSet();
  const auto with = [&](std::string_view label, bool smoke, Case one) {
    share_prefixes(one, Sharing::tree, wide ? 150 : 90);
    add(std::move(one), kCascadeEqualsFlat, smoke, cascade, label);
  };
  const Case plain = typical(form, tails);
  const bool decode = form == BatchForm::decode;
  with("", true, plain);
  with("", decode && wide, awkward(form, tails));
  if (wide) {
    // Levels long enough to be cut along their keys.
    Case one = plain;
    share_prefixes(one, Sharing::tree, 700);
    add(one, kCascadeEqualsFlat, decode, cascade, "long");
  }
  if (has(Feature::batch_invariant)) {
    Case one = plain;
    share_prefixes(one, Sharing::tree, 90);
    add(one, kCascadeEqualsFlat, true, cascade | Feature::batch_invariant, "invariant");
  }
  if (has(Feature::sliding_window)) {
    // Sees the tail alone, some of the inner levels, all of them.
    for (const std::int64_t window : {7, 200, 5000}) {
      Case one = plain;
      one.spec.window_left = window;
      one.spec.sinks = has(Feature::sinks);
      with("", decode && window == 200, one);
    }
  }
  for (const int group : {1, 3, 9, 71}) {
    Case one = plain;
    if (!row_.gqa_group_sizes.empty() && !row_.gqa_group_sizes.contains(group)) continue;
    one.spec = base_spec(variant_, {plain.spec.head_dim_qk, plain.spec.head_dim_vo}, group,
                         plain.spec.q_dtype, plain.spec.kv_dtype);
    if (has(Feature::soft_cap)) one.spec.logits_soft_cap = 3.0f;
    with("", decode && group == 71 && wide, one);
  }
  for (const DType kv : factors_.kv_dtype) {
    if (size_of(kv) != 1) continue;
    Case one = plain;
    one.spec.kv_dtype = kv;
    one.spec.kv_scales = has(Feature::kv_scales);
    with("", false, one);
  }
  if (has(Feature::alibi) && has(Feature::xai_temperature)) {
    Case one = plain;
    one.spec.alibi = true;
    one.spec.xai_temperature_len = 16;
    with("", false, one);
  }
  if (has(Feature::custom_mask) && !decode) {
    Case one = plain;
    one.mask = MaskKind::random;
    one.spec.custom_mask = true;
    with("", false, one);
  }
}

}  // namespace attune::conformance
