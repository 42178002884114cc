#include "conformance/cases.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/join.hpp"
#include "conformance/pairwise.hpp"
#include "conformance/problem.hpp"
#include "conformance/properties.hpp"

namespace attune::conformance {
namespace {

enum class Window : std::uint8_t { none, left, both };
enum class Scales : std::uint8_t { none, whole, per_head };
enum class Lengths : std::uint8_t { edges, one_long, full_pages, many };
enum class Place : std::uint8_t { paged, ragged };

/// The values each factor may take for one row.
struct Factors {
  std::vector<BatchForm> form;
  std::vector<DType> q_dtype, kv_dtype;
  std::vector<HeadDims> dims;
  std::vector<int> group;
  std::vector<std::int32_t> page_size;
  std::vector<KvLayout> layout;
  std::vector<Place> place;
  std::vector<AttentionKind> kind;
  std::vector<Window> window;
  std::vector<MaskKind> mask;
  std::vector<Scales> scales;
  std::vector<Lengths> lengths{Lengths::edges, Lengths::one_long, Lengths::full_pages,
                               Lengths::many};
  std::vector<int> cap, sinks, alibi, xai, chunk, lse;
  std::vector<int> offset{0, 1}, strided{0, 1};
};

/// The order of the factors in a FactorRow.
enum Factor : std::size_t {
  kForm,
  kQDtype,
  kKvDtype,
  kDims,
  kGroup,
  kPageSize,
  kLayout,
  kPlace,
  kKind,
  kWindow,
  kMask,
  kScales,
  kLengths,
  kCap,
  kSinks,
  kAlibi,
  kXai,
  kChunk,
  kLse,
  kOffset,
  kStrided,
  kNumFactors,
};

std::vector<int> sizes_of(const Factors& f) {
  std::vector<int> sizes(kNumFactors);
  const auto set = [&](Factor at, const auto& values) {
    sizes[at] = static_cast<int>(values.size());
  };
  set(kForm, f.form);
  set(kQDtype, f.q_dtype);
  set(kKvDtype, f.kv_dtype);
  set(kDims, f.dims);
  set(kGroup, f.group);
  set(kPageSize, f.page_size);
  set(kLayout, f.layout);
  set(kPlace, f.place);
  set(kKind, f.kind);
  set(kWindow, f.window);
  set(kMask, f.mask);
  set(kScales, f.scales);
  set(kLengths, f.lengths);
  set(kCap, f.cap);
  set(kSinks, f.sinks);
  set(kAlibi, f.alibi);
  set(kXai, f.xai);
  set(kChunk, f.chunk);
  set(kLse, f.lse);
  set(kOffset, f.offset);
  set(kStrided, f.strided);
  return sizes;
}

template <class T, std::size_t N>
std::vector<T> values_or(const FixedList<T, N>& declared, std::vector<T> otherwise) {
  if (declared.empty()) return otherwise;
  return {declared.begin(), declared.end()};
}

std::vector<HeadDims> dims_of(const Capability& row, Variant variant) {
  if (!row.head_dims.empty()) return {row.head_dims.begin(), row.head_dims.end()};
  if (variant == Variant::mla) return {{576, 512}, {96, 64}};
  std::vector<HeadDims> dims;
  for (const int d : {64, 128, 80, 96, 256, 192, 40, 33, 8})
    if (row.max_head_dim == 0 || d <= row.max_head_dim) dims.push_back({d, d});
  if (row.features.has(Feature::unequal_head_dims)) {
    dims.push_back({192, 128});
    dims.push_back({48, 80});
  }
  return dims;
}

Factors factors_of(const Capability& row, Variant variant) {
  const auto has = [&](Feature f) { return row.features.has(f); };
  Factors f;
  for (const Phase phase : row.phases) {
    if (phase == Phase::decode) {
      f.form.push_back(BatchForm::decode);
      continue;
    }
    f.form.push_back(BatchForm::extend);
    if (has(Feature::mixed_batch)) f.form.push_back(BatchForm::mixed);
    if (has(Feature::target_verify)) f.form.push_back(BatchForm::target_verify);
    if (has(Feature::draft_extend)) f.form.push_back(BatchForm::draft_extend);
  }
  f.q_dtype = values_or(row.q_dtypes, {DType::bf16});
  f.kv_dtype = values_or(row.kv_dtypes, {DType::bf16});
  if (!has(Feature::kv_scales)) std::erase(f.kv_dtype, DType::i8);
  f.dims = dims_of(row, variant);
  f.group = values_or(row.gqa_group_sizes, variant == Variant::mla
                                               ? std::vector<int>{16, 1, 3}
                                               : std::vector<int>{4, 1, 2, 3, 8, 9, 71});
  f.page_size =
      values_or(row.page_sizes, std::vector<std::int32_t>{16, 1, 2, 3, 5, 32, 64, 128, 256});
  f.layout = values_or(row.kv_layouts, {KvLayout::nhd});
  f.place = {Place::paged};
  f.kind = {AttentionKind::decoder};
  f.window = {Window::none};
  f.mask = {MaskKind::none};
  f.scales = {Scales::none};
  f.cap = f.sinks = f.alibi = f.xai = f.chunk = {0};
  f.lse = {0};
  if (has(Feature::ragged_kv)) f.place.push_back(Place::ragged);
  if (has(Feature::cross_attention)) f.kind.push_back(AttentionKind::cross);
  if (has(Feature::encoder_only)) f.kind.push_back(AttentionKind::encoder_only);
  if (has(Feature::sliding_window)) {
    f.window.push_back(Window::left);
    if (f.kind.size() > 1) f.window.push_back(Window::both);
  }
  if (has(Feature::custom_mask)) f.mask.push_back(MaskKind::random);
  if (has(Feature::tree_verify) && has(Feature::target_verify)) f.mask.push_back(MaskKind::tree);
  if (has(Feature::kv_scales)) f.scales.push_back(Scales::whole);
  if (has(Feature::per_head_scales) && variant != Variant::mla)
    f.scales.push_back(Scales::per_head);
  if (has(Feature::soft_cap)) f.cap.push_back(1);
  if (has(Feature::sinks)) f.sinks.push_back(1);
  if (has(Feature::alibi)) f.alibi.push_back(1);
  if (has(Feature::xai_temperature)) f.xai.push_back(1);
  if (has(Feature::attention_chunk)) f.chunk.push_back(1);
  if (has(Feature::lse)) f.lse.push_back(1);
  return f;
}

/// Combinations that mean something. Unset factors are taken to fit.
bool makes_sense(const Factors& f, const FactorRow& row) {
  const auto is = [&](Factor at, const auto& values, auto wanted) {
    return row[at] != kUnset && values[static_cast<std::size_t>(row[at])] == wanted;
  };
  const auto on = [&](Factor at) { return row[at] > 0; };
  const bool decode = is(kForm, f.form, BatchForm::decode);
  const bool decoder = is(kKind, f.kind, AttentionKind::decoder);
  const bool other_kind = row[kKind] != kUnset && !decoder;
  const bool encoder = is(kKind, f.kind, AttentionKind::encoder_only);
  const bool ragged = is(kPlace, f.place, Place::ragged);
  const bool paged = is(kPlace, f.place, Place::paged);
  const bool tree = is(kMask, f.mask, MaskKind::tree);
  const bool drafts =
      is(kForm, f.form, BatchForm::target_verify) || is(kForm, f.form, BatchForm::draft_extend);
  if (encoder && (decode || paged || drafts)) return false;
  if (ragged && decode) return false;
  // Without pages, their layout and size are nothing to vary.
  if (ragged && (on(kLayout) || on(kPageSize))) return false;
  if (is(kWindow, f.window, Window::both) && decoder) return false;
  if (other_kind && (on(kMask) || on(kXai) || on(kChunk) || drafts)) return false;
  if (tree && row[kForm] != kUnset && !is(kForm, f.form, BatchForm::target_verify)) return false;
  if (is(kMask, f.mask, MaskKind::random) && drafts) return false;
  if (is(kKvDtype, f.kv_dtype, DType::i8) && is(kScales, f.scales, Scales::none)) return false;
  return true;
}

int kv_heads_for(int group, Variant variant) {
  if (variant == Variant::mla || group > 16) return 1;
  return group == 1 ? 3 : 2;
}

AttentionSpec base_spec(Variant variant, HeadDims dims, int group, DType q, DType kv) {
  const int kv_heads = kv_heads_for(group, variant);
  AttentionSpec spec{.variant = variant,
                     .num_qo_heads = group * kv_heads,
                     .num_kv_heads = kv_heads,
                     .head_dim_qk = dims.qk,
                     .head_dim_vo = dims.vo,
                     // Sharper than 1/sqrt(d), so that single keys matter.
                     .sm_scale = 1.5f / std::sqrt(static_cast<float>(dims.qk)),
                     .q_dtype = q,
                     .o_dtype = q,
                     .kv_dtype = kv};
  if (variant == Variant::mla) {
    spec.kv_lora_rank = dims.vo;
    spec.qk_rope_head_dim = dims.qk - dims.vo;
  }
  spec.kv_scales = kv == DType::i8;
  return spec;
}

std::vector<RequestShape> lengths_of(Lengths pattern, std::int32_t page, BatchForm form,
                                     Random& random) {
  std::vector<RequestShape> shapes;
  const std::int32_t some_pages = std::clamp(4 * page + 3, 67, 300);
  switch (pattern) {
    case Lengths::edges:
      shapes = {{2, 0}, {3, 1}, {1, std::max(page - 1, 2)}, {5, page}, {4, page + 1}};
      break;
    case Lengths::one_long: shapes = {{7, 7}, {9, some_pages}, {1, 1}, {0, 13}}; break;
    case Lengths::full_pages:
      shapes = {{std::min(2 * page, 33), 2 * page}, {4, std::min(3 * page, 512)}};
      break;
    case Lengths::many:
      for (int i = 0; i < 17; ++i) {
        const auto kv = static_cast<std::int32_t>(1 + random.below(std::min(3 * page, 50)));
        shapes.push_back({static_cast<std::int32_t>(random.below(std::min(kv, 8) + 1)), kv});
      }
      break;
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    RequestShape& r = shapes[i];
    if (form == BatchForm::decode) r.qo_len = 1;
    if (form == BatchForm::mixed && i % 2 == 0) r.qo_len = 1;
    if (form == BatchForm::target_verify || form == BatchForm::draft_extend) {
      r.qo_len = form == BatchForm::target_verify ? 4 : 3;
      r.kv_len = std::max(r.kv_len, r.qo_len);
    }
  }
  return shapes;
}

Case case_of(const Factors& f, const FactorRow& row, Variant variant, std::uint64_t seed) {
  Random random(seed);
  const auto at = [&](Factor factor) { return static_cast<std::size_t>(row[factor]); };
  Case one{.form = f.form[at(kForm)],
           .source = f.place[at(kPlace)] == Place::ragged ? KvSource::ragged : KvSource::paged,
           .layout = f.layout[at(kLayout)],
           .page_size = f.page_size[at(kPageSize)],
           .mask = f.mask[at(kMask)],
           .want_lse = f.lse[at(kLse)] != 0,
           .strided = f.strided[at(kStrided)] != 0,
           .property = &kMatchesReference,
           .seed = seed};
  one.spec = base_spec(variant, f.dims[at(kDims)], f.group[at(kGroup)], f.q_dtype[at(kQDtype)],
                       f.kv_dtype[at(kKvDtype)]);
  AttentionSpec& s = one.spec;
  s.kind = f.kind[at(kKind)];
  s.causal = s.kind == AttentionKind::decoder;
  s.custom_mask = one.mask != MaskKind::none;
  constexpr std::int64_t kWindows[] = {0, 3, 15, 40};
  const Window window = f.window[at(kWindow)];
  if (window != Window::none) s.window_left = kWindows[random.below(4)];
  if (window == Window::both) s.window_right = kWindows[random.below(4)];
  if (f.cap[at(kCap)] != 0) s.logits_soft_cap = 3.0f;
  s.sinks = f.sinks[at(kSinks)] != 0;
  s.alibi = f.alibi[at(kAlibi)] != 0;
  if (f.xai[at(kXai)] != 0) s.xai_temperature_len = 16;
  if (f.chunk[at(kChunk)] != 0) s.attention_chunk = 8;
  s.kv_scales = f.scales[at(kScales)] != Scales::none;
  s.per_head_scales = f.scales[at(kScales)] == Scales::per_head;
  one.requests = lengths_of(f.lengths[at(kLengths)], one.page_size, one.form, random);
  if (f.offset[at(kOffset)] != 0)
    for (std::size_t i = 0; i < one.requests.size(); i += 2)
      one.requests[i].kv_offset = std::int64_t{3} * one.page_size;
  return one;
}

// ---- typical shapes and hard cases ----------------------------------------------------------

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
    const bool mla = variant_ == Variant::mla;
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
    const bool mla = variant_ == Variant::mla;
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
    for (const Case& one : {a, b}) {
      add(one, kPagesPermuted, true);
      if (has(Feature::deterministic)) add(one, kDeterministic, true, Feature::deterministic);
      add(one, kPlanServesLayers, true);
      add(one, kWorkspaceExact, true);
      add(one, kBoundsCoverSmallerBatches, true);
      add(one, kNeighboursDoNotMatter, true,
          has(Feature::batch_invariant) ? FeatureSet(Feature::batch_invariant) : FeatureSet());
      add(one, kHugePool, &one == &a || factors_.layout.size() > 1);
    }
    add(typical(BatchForm::decode, {{1, 40}, {1, 9}}), kRefusesHostileInput, true);
    // Six decodes of each request, replanned by refresh alone.
    const std::vector<RequestShape> growing{{6, 38}, {6, 6}, {6, 131}};
    add(typical(BatchForm::decode, growing), kRefreshEqualsFresh, true);
    add(awkward(BatchForm::decode, growing), kRefreshEqualsFresh, false);
    if (has(Feature::cuda_graph))
      add(typical(BatchForm::decode, growing), kGraphReplay, true, Feature::cuda_graph);
    const FeatureSet cascade = has(Feature::cascade) ? FeatureSet(Feature::cascade) : FeatureSet();
    const std::int32_t page = a.page_size;
    add(typical(BatchForm::decode, {{1, 2 * page + 7}, {1, 2 * page}, {1, 5 * page + 1}}),
        kCascadeEqualsFlat, true, cascade);
    add(typical(BatchForm::decode, {{1, 4096}, {1, 33}, {1, 1}}), kMatchesReference, true, {},
        "very_unequal");
    add(typical(BatchForm::idle, {}), kMatchesReference, true, {}, "idle");
    add(typical(BatchForm::decode, {{1, 0}, {1, 0}, {1, 0}}), kMatchesReference, true, {},
        "no_keys_at_all");
    many_requests();
    windows();
    large_scores();
  }

  /// 65,536 requests, nearly all of one key: launch limits and bookkeeping.
  void many_requests() {
    Case one = awkward(BatchForm::decode, {});
    one.spec = base_spec(variant_, smallest_dims(), 1, one.spec.q_dtype, one.spec.kv_dtype);
    if (variant_ != Variant::mla) one.spec.num_qo_heads = one.spec.num_kv_heads = 1;
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
    const bool smoke_mla = variant_ != Variant::mla;  // 576-wide fp32 prefills are for the long run
    for (const Case& one : {a, b}) {
      const bool smoke = smoke_mla || &one != &b;
      add(one, kPagesPermuted, smoke);
      if (has(Feature::deterministic)) add(one, kDeterministic, smoke, Feature::deterministic);
      add(one, kPlanServesLayers, smoke);
      add(one, kWorkspaceExact, smoke);
      add(one, kBoundsCoverSmallerBatches, smoke);
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
    long_extend();
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
    if (!has(Feature::sliding_window) || variant_ == Variant::mla) return;
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
  return HardCases(row, row.variants[0])
      .typical(phase == Phase::decode ? BatchForm::decode : BatchForm::extend, {{1, 1}});
}

std::vector<Case> make_cases(const Capability& row, std::uint64_t seed) {
  std::vector<Case> cases;
  for (const Variant variant : row.variants) {
    if (variant != Variant::gqa && variant != Variant::mla) continue;
    const Factors factors = factors_of(row, variant);
    // Three different arrays of pairs: most triples, too, for thrice the cases.
    for (const std::uint64_t array : {1, 2, 3}) {
      const auto rows = pairwise(
          sizes_of(factors), [&](const FactorRow& r) { return makes_sense(factors, r); }, array);
      const auto chosen = array == 1 ? each_value_once(rows) : std::vector<std::size_t>{};
      for (std::size_t n = 0; n < rows.size(); ++n) {
        Case one = case_of(factors, rows[n], variant, array * 500 + n);
        one.smoke = std::find(chosen.begin(), chosen.end(), n) != chosen.end();
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
