#include "conformance/cases.hpp"

#include <algorithm>
#include <map>

#include "base/join.hpp"
#include "conformance/factors.hpp"
#include "conformance/properties.hpp"

namespace attune::conformance {
namespace {

template <class T>
T pick(const std::vector<T>& values, const T& wanted) {
  return std::find(values.begin(), values.end(), wanted) != values.end() ? wanted : values.front();
}

/// Builds the property cases of one row and variant.
class HardCases {
 public:
  HardCases(const Capability& row, Variant variant)
      : row_(row), variant_(variant), factors_(factors_of(row, variant)) {}

  std::vector<Case> make() {
    if (row_.phases.contains(Phase::decode)) decode();
    if (row_.phases.contains(Phase::prefill)) prefill();
    return std::move(cases_);
  }

  /// bf16, 16-token pages, groups of 4 (or what is nearest to it).
  [[nodiscard]] Case typical(BatchForm form, std::vector<RequestShape> requests) const {
    const bool mla = is_latent(variant_);
    const DType q = pick(factors_.q_dtype, DType::bf16);
    Case one{.form = form,
             .layout = factors_.layout.front(),
             .page_size = pick(factors_.page_size, std::int32_t{16}),
             .want_lse = has(Feature::lse),
             .requests = std::move(requests),
             .seed = 7};
    one.spec =
        base_spec(variant_, mla ? factors_.dims.back() : pick(factors_.dims, HeadDims{128, 128}),
                  pick(factors_.group, mla ? 16 : 4), q, pick(factors_.kv_dtype, q));
    return one;
  }

 private:
  [[nodiscard]] bool has(Feature f) const { return row_.features.has(f); }

  /// fp32, the other layout, small odd pages, groups of 3, 80-wide heads.
  [[nodiscard]] Case awkward(BatchForm form, std::vector<RequestShape> requests) const {
    const bool mla = is_latent(variant_);
    const DType q = pick(factors_.q_dtype, DType::f32);
    Case one = typical(form, std::move(requests));
    one.layout = factors_.layout.back();
    one.page_size = pick(factors_.page_size, std::int32_t{5});
    one.spec =
        base_spec(variant_, mla ? factors_.dims.front() : pick(factors_.dims, HeadDims{80, 80}),
                  pick(factors_.group, 3), q, pick(factors_.kv_dtype, q));
    return one;
  }

  void add(Case one, const Property& property, bool smoke, FeatureSet exercises = {},
           std::string_view label = {}) {
    one.property = &property;
    one.smoke = smoke;
    one.exercises = exercises;
    one.label = label;
    cases_.push_back(std::move(one));
  }

  void decode() {
    const std::vector<RequestShape> uneven{{1, 333}, {1, 1}, {1, 0}, {1, 47}, {1, 16}, {1, 17}};
    const Case a = typical(BatchForm::decode, uneven);
    const Case b = awkward(BatchForm::decode, uneven);
    for (const Case* which : {&a, &b}) {
      const Case& one = *which;
      add(one, kPagesPermuted, true);
      if (has(Feature::deterministic)) add(one, kDeterministic, true, Feature::deterministic);
      add(one, kPlanServesLayers, true);
      add(one, kWorkspaceExact, true);
      add(one, kBoundsCoverSmallerBatches, true);
      add(one, kPlansRunTogether, which == &a);
      add(one, kNeighboursDoNotMatter, true,
          has(Feature::batch_invariant) ? FeatureSet(Feature::batch_invariant) : FeatureSet());
      add(one, kHugePool, which == &a || factors_.layout.size() > 1);
    }
    add(typical(BatchForm::decode, {{1, 40}, {1, 9}}), kRefusesHostileInput, true);
    // Six decodes of each request, replanned by refresh alone.
    const std::vector<RequestShape> growing{{6, 38}, {6, 6}, {6, 131}};
    add(typical(BatchForm::decode, growing), kRefreshEqualsFresh, true);
    add(awkward(BatchForm::decode, growing), kRefreshEqualsFresh, false);
    if (has(Feature::cuda_graph))
      add(typical(BatchForm::decode, growing), kGraphReplay, true, Feature::cuda_graph);
    if (has(Feature::device_planning)) device_planning(uneven);
    shared_prefixes(BatchForm::decode);
    kept_keys(BatchForm::decode, uneven, growing);
    add(typical(BatchForm::decode, {{1, 4096}, {1, 33}, {1, 1}}), kMatchesReference, true, {},
        "very_unequal");
    add(typical(BatchForm::idle, {}), kMatchesReference, true, {}, "idle");
    add(typical(BatchForm::decode, {{1, 0}, {1, 0}, {1, 0}}), kMatchesReference, true, {},
        "no_keys_at_all");
    many_requests();
    windows();
    large_scores();
  }

  void device_planning(const std::vector<RequestShape>& uneven) {
    const auto with = [&](Case one, std::string_view label, bool smoke) {
      add(std::move(one), kPlansOnTheDevice, smoke, Feature::device_planning, label);
    };
    with(typical(BatchForm::decode, uneven), "", true);
    with(awkward(BatchForm::decode, uneven), "", false);
    // One request whose parts are most of the list; more requests than a block's threads.
    with(typical(BatchForm::decode, {{1, 9}, {1, 0}, {1, 1500}, {1, 33}, {1, 400}}), "very_unequal",
         true);
    std::vector<RequestShape> many(600, {1, 1});
    for (std::size_t i = 0; i < many.size(); i += 97) many[i].kv_len = 5 + static_cast<int>(i) / 3;
    with(typical(BatchForm::decode, many), "many", false);
    if (!has(Feature::sliding_window)) return;
    Case one = typical(BatchForm::decode, uneven);
    one.spec.window_left = 40;
    with(one, "", true);
  }

  /// Lists that the call brings; budgets of one key, of exactly the longest request's, of more.
  void kept_keys(BatchForm form, const std::vector<RequestShape>& uneven,
                 const std::vector<RequestShape>& growing) {
    if (variant_ != Variant::sparse_mla) return;
    const auto with = [&](Case one, const Property& property, bool smoke, int topk, bool given,
                          std::string_view label) {
      if (topk > 0) one.spec.index_topk = topk;
      one.given_lists = given;
      add(std::move(one), property, smoke, {}, label);
    };
    for (const bool typically : {true, false}) {
      const Case one = typically ? typical(form, uneven) : awkward(form, uneven);
      const bool smoke = typically;
      with(one, kMatchesReference, smoke, 0, true, "lists");
      with(one, kPagesPermuted, smoke, 0, true, "lists");
      with(one, kPlanServesLayers, false, 0, true, "lists");
      with(one, kWorkspaceExact, false, 0, true, "lists");
      with(one, kMatchesReference, smoke, 1, false, "one_key_kept");
      with(one, kMatchesReference, smoke, 333, false, "exactly_all_kept");
      with(one, kAllKeptEqualsDense, smoke, 333, false, "");
      with(one, kAllKeptEqualsDense, smoke, 700, false, "");
    }
    if (form == BatchForm::decode) {
      with(typical(form, growing), kRefreshEqualsFresh, true, 0, true, "lists");
      if (has(Feature::cuda_graph))
        with(typical(form, growing), kGraphReplay, true, 0, true, "lists");
    } else if (has(Feature::chunked_prefix))
      with(typical(form, growing), kChunkedEqualsWhole, true, 0, true, "lists");
  }

  /// 65,536 requests, nearly all of one key: launch limits and bookkeeping.
  void many_requests() {
    Case one = awkward(BatchForm::decode, {});
    one.spec = base_spec(variant_, smallest_dims(), 1, one.spec.q_dtype, one.spec.kv_dtype);
    if (!is_latent(variant_)) one.spec.num_qo_heads = one.spec.num_kv_heads = 1;
    if (!row_.gqa_group_sizes.empty()) one.spec.num_qo_heads = row_.gqa_group_sizes[0];
    one.requests.assign(65536, {1, 1});
    one.requests[0].kv_len = 257;
    one.requests[32767].kv_len = 3;
    one.requests[65535].kv_len = 129;
    add(one, kMatchesReference, false, {}, "65536_requests");
  }

  /// Every place of a window's start inside a tile of 32 and a page.
  void windows() {
    if (!has(Feature::sliding_window)) return;
    std::vector<RequestShape> lengths;
    for (std::int32_t kv = 30; kv < 30 + 64; ++kv) lengths.push_back({1, kv});
    Case one = typical(BatchForm::decode, std::move(lengths));
    one.spec.window_left = 31;
    add(one, kMatchesReference, true, {}, "every_window_start");
  }

  /// q.k beyond the range of fp16 before it is scaled.
  void large_scores() {
    Case one = typical(BatchForm::decode, {{1, 65}, {1, 7}});
    if (std::find(factors_.q_dtype.begin(), factors_.q_dtype.end(), DType::f16) ==
        factors_.q_dtype.end())
      return;
    one.spec.q_dtype = one.spec.o_dtype = DType::f16;
    one.spec.kv_dtype = pick(factors_.kv_dtype, DType::f16);
    one.gain = 64.0;
    one.spec.sm_scale /= 64.0f * 64.0f;
    add(one, kMatchesReference, true, {}, "large_scores");
  }

  [[nodiscard]] HeadDims smallest_dims() const {
    return *std::min_element(
        factors_.dims.begin(), factors_.dims.end(),
        [](const HeadDims& x, const HeadDims& y) { return x.qk + x.vo < y.qk + y.vo; });
  }

  void prefill() {
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
    drafts();
    long_extend();
    shared_prefixes(BatchForm::extend);
    kept_keys(BatchForm::extend, uneven, growing);
    if (has(Feature::mixed_batch)) shared_prefixes(BatchForm::mixed);
  }

  /// Prompts cut at multiples of the granule, whole or behind some that are cached.
  void cuts() {
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

  /// Trees of prefixes over requests of uneven tails, with whatever may stand in a level's way.
  void shared_prefixes(BatchForm form) {
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

  /// Draft tokens of requests that guess unequally far: one token beside many, from nothing and
  /// across pages; as chains and as trees, with windows.
  void drafts() {
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

  /// Rows that see nothing at the start, the end and inside of tiles, with sinks if there are any.
  void blind_rows() {
    if (!has(Feature::custom_mask)) return;
    Case one = typical(BatchForm::extend, {{70, 131}, {64, 64}, {3, 50}});
    one.mask = MaskKind::random;
    one.spec.custom_mask = true;
    one.spec.sinks = has(Feature::sinks);
    add(one, kMatchesReference, true, {}, "blind_rows");
  }

  /// A window across the seam of cached and new keys: prefill rows against single decodes.
  void windowed_decodes() {
    if (!has(Feature::sliding_window)) return;
    Case one = typical(BatchForm::extend, {{6, 26}, {11, 40}});
    one.spec.window_left = 6;
    add(one, kPrefillEqualsDecodes, true, {}, "window_at_the_seam");
    if (!has(Feature::sinks)) return;
    one.spec.sinks = true;
    add(one, kPrefillEqualsDecodes, true, {}, "window_and_sinks");
  }

  /// One extend of more than 65,535 tokens.
  void long_extend() {
    if (!has(Feature::sliding_window) || is_latent(variant_)) return;
    Case one = awkward(BatchForm::extend, {{65537, 65537}});
    one.spec = base_spec(variant_, smallest_dims(), 1, one.spec.q_dtype, one.spec.kv_dtype);
    one.spec.num_qo_heads = one.spec.num_kv_heads = 1;
    if (!row_.gqa_group_sizes.empty()) one.spec.num_qo_heads = row_.gqa_group_sizes[0];
    one.spec.window_left = 4;
    add(one, kMatchesReference, false, {}, "65537_tokens");
  }

  const Capability& row_;
  Variant variant_;
  Factors factors_;
  std::vector<Case> cases_;
};

}  // namespace

Case plain_case(const Capability& row, Phase phase) {
  if (is_linear(row.variants[0])) return plain_linear_case(row, phase);
  return HardCases(row, row.variants[0])
      .typical(phase == Phase::decode ? BatchForm::decode : BatchForm::extend, {{1, 1}});
}

std::vector<Case> make_cases(const Capability& row, std::uint64_t seed) {
  std::vector<Case> cases;
  for (const Variant variant : row.variants) {
    if (is_linear(variant)) {
      for (Case& one : make_linear_cases(row, variant)) cases.push_back(std::move(one));
      continue;
    }
    if (variant != Variant::gqa && !is_latent(variant)) continue;
    const Factors factors = factors_of(row, variant);
    // Three different arrays of pairs: most triples, too, for thrice the cases.
    for (const std::uint64_t array : {1, 2, 3}) {
      const auto rows = factor_rows(factors, array);
      const auto chosen = array == 1 ? each_value_once(rows) : std::vector<std::size_t>{};
      for (std::size_t n = 0; n < rows.size(); ++n) {
        Case one = case_of(factors, rows[n], variant, array * 500 + n);
        one.smoke = std::find(chosen.begin(), chosen.end(), n) != chosen.end();
        if (!one.sharing.empty() && row.features.has(Feature::cascade))
          one.exercises = Feature::cascade;
        cases.push_back(std::move(one));
      }
    }
    for (Case& one : HardCases(row, variant).make()) cases.push_back(std::move(one));
  }
  std::map<std::string, int> seen;
  for (Case& one : cases) {
    one.seed += seed * 10000;
    one.name = case_name(one);
    if (const int count = ++seen[one.name]; count > 1) one.name += base::join("#", count);
  }
  return cases;
}

}  // namespace attune::conformance
