#include "registry/feature_rules.hpp"

#include <charconv>

#include "base/join.hpp"

namespace attune::registry {
namespace {

using base::join;

std::string shortest(float x) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, x).ptr;
  return {digits, end};
}

constexpr FeatureRule kFeatureRules[] = {
    {Feature::sliding_window,
     [](const AttentionSpec& s, const SelectionOptions&) {
       return s.window_left >= 0 || s.window_right >= 0;
     },
     [](const AttentionSpec& s, const SelectionOptions&) {
       return join("a window of ", s.window_left + 1, " keys");
     }},
    {Feature::soft_cap,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.logits_soft_cap > 0; },
     [](const AttentionSpec& s, const SelectionOptions&) {
       return "a cap of " + shortest(s.logits_soft_cap);
     }},
    {Feature::sinks, [](const AttentionSpec& s, const SelectionOptions&) { return s.sinks; },
     [](const AttentionSpec&, const SelectionOptions&) { return std::string("sinks"); }},
    {Feature::attention_chunk,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.attention_chunk > 0; },
     [](const AttentionSpec& s, const SelectionOptions&) {
       return join("chunks of ", s.attention_chunk);
     }},
    {Feature::cross_attention,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.kind == AttentionKind::cross; },
     [](const AttentionSpec&, const SelectionOptions&) { return std::string("cross attention"); }},
    {Feature::encoder_only,
     [](const AttentionSpec& s, const SelectionOptions&) {
       return s.kind == AttentionKind::encoder_only;
     },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("a bidirectional encoder");
     }},
    {Feature::unequal_head_dims,
     [](const AttentionSpec& s, const SelectionOptions&) {
       return has_kv_heads(s.variant) && s.head_dim_qk != s.head_dim_vo;
     },
     [](const AttentionSpec& s, const SelectionOptions&) {
       return join("K ", s.head_dim_qk, ", V ", s.head_dim_vo);
     }},
    {Feature::alibi, [](const AttentionSpec& s, const SelectionOptions&) { return s.alibi; },
     [](const AttentionSpec&, const SelectionOptions&) { return std::string("ALiBi"); }},
    {Feature::relative_bias,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.relative_bias; },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("a learned bias by distance");
     }},
    {Feature::custom_mask,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.custom_mask; },
     [](const AttentionSpec&, const SelectionOptions&) { return std::string("a custom mask"); }},
    {Feature::block_mask,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.block_mask; },
     [](const AttentionSpec&, const SelectionOptions&) { return std::string("a mask by blocks"); }},
    {Feature::score_mod,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.score_mod; },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("a function on logits");
     }},
    {Feature::xai_temperature,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.xai_temperature_len > 0; },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("a temperature by length");
     }},
    {Feature::kv_scales,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.kv_scales; },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("scaled keys and values");
     }},
    {Feature::per_head_scales,
     [](const AttentionSpec& s, const SelectionOptions&) { return s.per_head_scales; },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("scales by KV head");
     }},
    {Feature::target_verify,
     [](const AttentionSpec&, const SelectionOptions& o) { return o.speculative_topk >= 1; },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("draft tokens to verify");
     }},
    {Feature::tree_verify,
     [](const AttentionSpec& s, const SelectionOptions& o) {
       return o.speculative_topk > 1 && !is_linear(s.variant);
     },
     [](const AttentionSpec&, const SelectionOptions& o) {
       return join("a tree of draft tokens, top ", o.speculative_topk);
     }},
    {Feature::deterministic,
     [](const AttentionSpec& s, const SelectionOptions& o) {
       return o.required.has(Feature::deterministic) && !is_linear(s.variant);
     },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("the same bits every run asked for");
     }},
    {Feature::batch_invariant,
     [](const AttentionSpec&, const SelectionOptions& o) {
       return o.required.has(Feature::batch_invariant);
     },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("bits that do not depend on neighbours asked for");
     }},
    {Feature::lse,
     [](const AttentionSpec&, const SelectionOptions& o) { return o.required.has(Feature::lse); },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("log-sum-exp asked for");
     }},
    {Feature::ragged_kv,
     [](const AttentionSpec&, const SelectionOptions& o) {
       return o.required.has(Feature::ragged_kv);
     },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("ragged keys asked for");
     }},
    {Feature::chunked_prefix,
     [](const AttentionSpec&, const SelectionOptions& o) {
       return o.required.has(Feature::chunked_prefix);
     },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("chunks of a cached prefix to be joined");
     }},
    {Feature::cascade,
     [](const AttentionSpec&, const SelectionOptions& o) {
       return o.required.has(Feature::cascade);
     },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("shared prefixes asked for");
     }},
    {Feature::cuda_graph,
     [](const AttentionSpec&, const SelectionOptions& o) {
       return o.required.has(Feature::cuda_graph);
     },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("graph capture asked for");
     }},
    {Feature::device_planning,
     [](const AttentionSpec& s, const SelectionOptions& o) {
       return o.required.has(Feature::device_planning) && !is_linear(s.variant);
     },
     [](const AttentionSpec&, const SelectionOptions&) {
       return std::string("plans from lengths on the device asked for");
     }},
};

}  // namespace

std::span<const FeatureRule> feature_rules() { return kFeatureRules; }

}  // namespace attune::registry
