#include "conformance/hard_cases.hpp"

#include <utility>

#include "conformance/properties.hpp"

namespace attune::conformance {

void HardCases::prefill() {
  const std::vector<RequestShape> uneven{{70, 131}, {1, 1}, {3, 0}, {0, 9}, {5, 3}, {33, 33}};
  const std::vector<RequestShape> growing{{70, 131}, {1, 1}, {33, 33}};
  const Case a = typical(BatchForm::extend, uneven);
  const Case b = awkward(BatchForm::extend, uneven);
  const bool smoke_mla = !is_latent(variant_);  // 576-wide fp32 prefills are for the long run
  for (const Case* which : {&a, &b}) {
    const Case& one = *which;
    const bool smoke = smoke_mla || which != &b;
    add(one, kPagesPermuted, smoke);
    if (has(Feature::deterministic)) add(one, kDeterministic, smoke, Feature::deterministic);
    add(one, kPlanServesLayers, smoke);
    add(one, kWorkspaceExact, smoke);
    add(one, kBoundsCoverSmallerBatches, smoke);
    add(one, kPlansRunTogether, smoke_mla && which == &a);
    add(one, kNeighboursDoNotMatter, smoke,
        has(Feature::batch_invariant) ? FeatureSet(Feature::batch_invariant) : FeatureSet());
  }
  add(typical(BatchForm::extend, {{5, 40}, {3, 9}}), kRefusesHostileInput, true);
  add(typical(BatchForm::extend, {{5, 40}, {3, 9}}), kHugePool, true);
  add(typical(BatchForm::extend, {{40, 40}, {9, 9}}), kHugePoolAppend, true);
  if (has(Feature::chunked_prefix)) {
    add(typical(BatchForm::extend, growing), kChunkedEqualsWhole, true, Feature::chunked_prefix);
    add(awkward(BatchForm::extend, growing), kChunkedEqualsWhole, false, Feature::chunked_prefix);
  }
  if (has(Feature::batch_invariant) && has(Feature::chunked_prefix)) cuts();
  if (row_.phases.contains(Phase::decode)) {
    add(typical(BatchForm::extend, {{19, 40}, {7, 7}}), kPrefillEqualsDecodes, true);
    windowed_decodes();
  }
  if (has(Feature::lse) && has(Feature::cross_attention)) {
    add(typical(BatchForm::extend, {{21, 90}}), kPartsMerge, true);
    add(awkward(BatchForm::extend, {{21, 90}}), kPartsMerge, false);
  }
  for (const DType kv : factors_.kv_dtype) {
    Case one = typical(BatchForm::extend, {{19, 19}, {3, 3}, {33, 33}});
    one.spec.kv_dtype = kv;
    one.spec.kv_scales = has(Feature::kv_scales) && (kv == DType::i8 || kv == DType::fp8_e4m3);
    add(one, kAppendThenRun, true);
    Case other = awkward(BatchForm::extend, {{19, 19}, {3, 3}, {33, 33}});
    other.spec.kv_dtype = kv;
    other.spec.kv_scales = kv == DType::i8;
    other.strided = true;
    add(other, kAppendThenRun, false);
  }
  // 253 of 256 rows see no key.
  add(typical(BatchForm::extend, {{76, 1}, {34, 1}, {146, 1}}), kMatchesReference, true, {},
      "one_key_each");
  std::vector<RequestShape> short_ones;
  for (std::int32_t kv = 1; kv <= 17; ++kv) short_ones.push_back({std::min(kv, 8), kv});
  add(typical(BatchForm::extend, short_ones), kMatchesReference, true, {},
      "fewer_keys_than_a_tile");
  // Prefix and extend lengths that fill no block.
  add(typical(BatchForm::extend, {{7, 40}, {31, 64}, {65, 200}}), kMatchesReference, true, {},
      "tails");
  blind_rows();
  flex(BatchForm::extend);
  drafts();
  long_extend();
  shared_prefixes(BatchForm::extend);
  kept_keys(BatchForm::extend, uneven, growing);
  chunks(BatchForm::extend, uneven, growing);
  if (has(Feature::mixed_batch)) shared_prefixes(BatchForm::mixed);
}

void HardCases::cuts() {
  const std::vector<RequestShape> prompts{{300, 300}, {1, 1}, {200, 264}, {64, 64}, {65, 65}};
  const auto with = [&](Case one, bool smoke) {
    add(std::move(one), kCutsKeepBits, smoke, Feature::batch_invariant);
  };
  with(typical(BatchForm::extend, prompts), true);
  with(awkward(BatchForm::extend, prompts), !is_latent(variant_));
  if (!has(Feature::sliding_window)) return;
  Case one = typical(BatchForm::extend, prompts);
  one.spec.window_left = 75;
  with(one, false);
}

void HardCases::blind_rows() {
  if (!has(Feature::custom_mask)) return;
  Case one = typical(BatchForm::extend, {{70, 131}, {64, 64}, {3, 50}});
  one.mask = MaskKind::random;
  one.spec.custom_mask = true;
  one.spec.sinks = has(Feature::sinks);
  add(one, kMatchesReference, true, {}, "blind_rows");
}

void HardCases::flex(BatchForm form) {
  if (!has(Feature::block_mask)) return;
  const bool scores_too = has(Feature::score_mod);
  const bool decode = form == BatchForm::decode;
  const auto queries = [&](std::int32_t n) { return decode ? 1 : n; };
  // Lengths around a block, three of them, a seam inside of one, and no keys at all.
  const std::vector<RequestShape> shapes{{queries(300), 700}, {queries(127), 127},
                                         {queries(129), 129}, {queries(128), 384},
                                         {queries(1), 513},   {queries(2), 0}};
  for (const bool by_head : {false, true}) {
    for (const bool modified : {false, true}) {
      if (modified && !scores_too) continue;
      Case one = modified ? awkward(form, shapes) : typical(form, shapes);
      one.mask_by_head = by_head;
      one.spec.block_mask = true;
      one.spec.score_mod = modified;
      add(one, kMatchesReference, true, {}, "blocks");
      one.spec.sinks = has(Feature::sinks);
      if (has(Feature::sliding_window)) one.spec.window_left = 200;
      add(one, kMatchesReference, false, {}, "blocks_and_window");
    }
  }
  if (scores_too) {
    Case scores = typical(form, shapes);
    scores.spec.score_mod = true;
    add(scores, kMatchesReference, true, {}, "scores");
  }
  if (decode) return;
  Case cut = typical(form, {{190, 330}, {150, 150}});
  cut.spec.block_mask = true;
  cut.spec.score_mod = scores_too;
  add(cut, kPrefillEqualsDecodes, true, {}, "blocks");
  if (has(Feature::chunked_prefix)) add(cut, kChunkedEqualsWhole, true, {}, "blocks");
}

void HardCases::windowed_decodes() {
  if (!has(Feature::sliding_window)) return;
  Case one = typical(BatchForm::extend, {{6, 26}, {11, 40}});
  one.spec.window_left = 6;
  add(one, kPrefillEqualsDecodes, true, {}, "window_at_the_seam");
  if (!has(Feature::sinks)) return;
  one.spec.sinks = true;
  add(one, kPrefillEqualsDecodes, true, {}, "window_and_sinks");
}

void HardCases::long_extend() {
  if (!has(Feature::sliding_window) || is_latent(variant_)) return;
  Case one = awkward(BatchForm::extend, {{65537, 65537}});
  one.spec = base_spec(variant_, smallest_dims(), 1, one.spec.q_dtype, one.spec.kv_dtype);
  one.spec.num_qo_heads = one.spec.num_kv_heads = 1;
  if (!row_.gqa_group_sizes.empty()) one.spec.num_qo_heads = row_.gqa_group_sizes[0];
  one.spec.window_left = 4;
  add(one, kMatchesReference, false, {}, "65537_tokens");
}

void HardCases::drafts() {
  const std::int32_t page = typical(BatchForm::extend, {}).page_size;
  const std::vector<RequestShape> mixed{{1, 40},        {7, 2 * page + 3}, {4, 4},  {1, 1},
                                        {16, page + 9}, {5, 3 * page},     {33, 70}};
  const bool smoke = !is_latent(variant_);
  const auto add_both = [&](BatchForm form, const auto& change, std::string_view label) {
    for (Case one : {typical(form, mixed), awkward(form, mixed)}) {
      change(one);
      add(std::move(one), kMatchesReference, smoke, {}, label);
    }
  };
  const auto tree = [](Case& one) {
    one.mask = MaskKind::tree;
    one.spec.custom_mask = true;
  };
  const auto window = [](Case& one) { one.spec.window_left = 9; };
  const bool windows = has(Feature::sliding_window);
  if (has(Feature::draft_extend))
    add_both(
        BatchForm::draft_extend, [](Case&) {}, "mixed_drafts");
  if (!has(Feature::target_verify)) return;
  add_both(
      BatchForm::target_verify, [](Case&) {}, "mixed_chains");
  if (windows) add_both(BatchForm::target_verify, window, "mixed_chains");
  if (!has(Feature::tree_verify) || !has(Feature::custom_mask)) return;
  add_both(BatchForm::target_verify, tree, "mixed_trees");
  if (!windows) return;
  add_both(
      BatchForm::target_verify,
      [&](Case& one) {
        tree(one);
        window(one);
        one.spec.sinks = has(Feature::sinks);
      },
      "mixed_trees");
}

}  // namespace attune::conformance
