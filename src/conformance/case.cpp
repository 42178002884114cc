#include "conformance/case.hpp"

#include <algorithm>

#include "base/join.hpp"

namespace attune::conformance {

using base::join;

namespace {

std::string dense_shape(const Case& one) {
  const AttentionSpec& s = one.spec;
  std::string text = join("/hd", s.head_dim_qk);
  if (s.head_dim_vo != s.head_dim_qk) text += join("x", s.head_dim_vo);
  text += join("/gqa", s.gqa_group_size());
  text += one.source == KvSource::ragged ? "/ragged" : join("/page", one.page_size);
  if (one.source == KvSource::paged && one.layout != KvLayout::nhd &&
      one.layout != KvLayout::mla_latent)
    text += join("-", name(one.layout));
  if (s.variant == Variant::dual_chunk) text += join("/chunk", s.dual_chunk_len);
  if (s.compress_ratio > 0) text += join("/ratio", s.compress_ratio);
  if (s.index_topk > 0)
    text += join("/top", s.index_topk, "of", s.index_num_heads, "x", s.index_head_dim);
  if (s.index_block_size > 0)
    text +=
        join("/blocks", s.index_block_size, "+", s.index_init_blocks, "+", s.index_local_blocks);
  return text;
}

std::string linear_shape(const AttentionSpec& s) {
  if (s.variant == Variant::short_conv) return join("/c", s.conv_dim, "/taps", s.conv_kernel);
  std::string text = join("/hd", s.linear_head_dim_k);
  if (s.linear_head_dim_v != s.linear_head_dim_k) text += join("x", s.linear_head_dim_v);
  text += join("/h", s.linear_num_v_heads);
  if (s.conv_kernel > 0) text += join("/taps", s.conv_kernel);
  return text;
}

std::string_view gates_name(Gates gates) {
  switch (gates) {
    case Gates::typical: return "typical";
    case Gates::forgetful: return "forgetful";
    case Gates::lasting: return "lasting";
    case Gates::steep: return "steep";
  }
  return "?";
}

}  // namespace

std::string case_name(const Case& one) {
  const AttentionSpec& s = one.spec;
  std::string text = join(name(s.variant), "/", name(phase_of(one)), "/", name(s.q_dtype));
  if (s.kv_dtype != s.q_dtype) text += join("-kv_", name(s.kv_dtype));
  text += is_linear(s.variant) ? linear_shape(s) : dense_shape(one);
  std::int32_t longest = 0;
  for (const RequestShape& r : one.requests) longest = std::max(longest, r.kv_len);
  text += join("/b", one.requests.size(), "x", longest);

  std::string more;
  const auto add = [&](bool yes, std::string_view word) {
    if (!yes) return;
    if (!more.empty()) more += "+";
    more += word;
  };
  add(!one.label.empty(), one.label);
  add(one.form != BatchForm::extend && one.form != BatchForm::decode, name(one.form));
  add(s.kind == AttentionKind::cross, "cross");
  add(s.kind == AttentionKind::encoder_only, "encoder");
  add(s.window_left >= 0, join("left", s.window_left));
  add(s.window_right >= 0, join("right", s.window_right));
  add(s.attention_chunk > 0, join("chunk", s.attention_chunk));
  add(s.logits_soft_cap > 0, "cap");
  add(s.sinks, "sinks");
  add(s.alibi, "alibi");
  add(s.xai_temperature_len > 0, "xai");
  add(one.mask == MaskKind::random, "mask");
  add(one.mask == MaskKind::tree, "tree");
  add(s.block_mask, one.mask_by_head ? "head_blocks" : "blocks");
  add(s.score_mod, "mod");
  add(s.kv_scales && !s.per_head_scales, "scales");
  add(s.per_head_scales, "head_scales");
  add(std::any_of(one.requests.begin(), one.requests.end(),
                  [](const RequestShape& r) { return r.kv_offset != 0; }),
      "offset");
  add(one.gates != Gates::typical, gates_name(one.gates));
  add(std::any_of(one.requests.begin(), one.requests.end(),
                  [](const RequestShape& r) { return r.padding; }),
      "padding");
  add(is_linear(s.variant) && one.seed % 2 == 1, "rich");
  add(!one.sharing.empty(), join("shared", one.sharing.size()));
  add(one.given_lists, "given");
  add(one.strided, "strided");
  add(!one.want_lse && !is_linear(s.variant), "no_lse");
  if (!more.empty()) text += "/" + more;
  return text + join("/", one.property->name);
}

FeatureSet features_of(const Case& one) {
  const AttentionSpec& s = one.spec;
  FeatureSet used = one.exercises;
  const auto add = [&](bool yes, Feature f) {
    if (yes) used = used | f;
  };
  add(one.want_lse, Feature::lse);
  add(s.window_left >= 0 || s.window_right >= 0, Feature::sliding_window);
  add(s.logits_soft_cap > 0, Feature::soft_cap);
  add(s.sinks, Feature::sinks);
  add(s.alibi, Feature::alibi);
  add(one.mask != MaskKind::none, Feature::custom_mask);
  add(s.block_mask, Feature::block_mask);
  add(s.score_mod, Feature::score_mod);
  add(s.kind == AttentionKind::cross, Feature::cross_attention);
  add(s.kind == AttentionKind::encoder_only, Feature::encoder_only);
  add(s.xai_temperature_len > 0, Feature::xai_temperature);
  add(s.attention_chunk > 0, Feature::attention_chunk);
  add(s.kv_scales, Feature::kv_scales);
  add(s.per_head_scales, Feature::per_head_scales);
  add(one.source == KvSource::ragged, Feature::ragged_kv);
  add(one.form == BatchForm::mixed, Feature::mixed_batch);
  add(one.form == BatchForm::target_verify, Feature::target_verify);
  add(one.form == BatchForm::draft_extend, Feature::draft_extend);
  add(one.mask == MaskKind::tree, Feature::tree_verify);
  add(!is_latent(s.variant) && s.head_dim_qk != s.head_dim_vo, Feature::unequal_head_dims);
  return used;
}

BackendContext context_of(const Subject& subject, const Case& one) {
  return {.spec = one.spec,
          .device = subject.device,
          .page_size = one.page_size,
          .kv_layout = one.layout,
          .executor = subject.executor,
          .batch_invariant = one.exercises.has(Feature::batch_invariant)};
}

}  // namespace attune::conformance
