// Cases of a row of linear attention: every pair of form, dtypes, dims, heads, gates, lengths and
// strides, each property over typical and awkward shapes, and named hard cases.
#include <algorithm>
#include <utility>
#include <vector>

#include "conformance/cases.hpp"
#include "conformance/linear_properties.hpp"
#include "conformance/pairwise.hpp"

namespace attune::conformance {
namespace {

/// Key heads, value heads, and a head's dims.
struct LinearDims {
  int k_heads, v_heads, dk, dv;
};

/// What is published for a family, then shapes that fill no vector and no block.
std::vector<LinearDims> dims_of(Variant variant) {
  switch (variant) {
    case Variant::kda: return {{2, 2, 128, 128}, {3, 3, 64, 64}, {1, 1, 40, 24}};
    case Variant::mamba2: return {{1, 4, 128, 64}, {1, 3, 256, 64}, {2, 6, 64, 64}, {2, 2, 16, 40}};
    case Variant::lightning: return {{2, 2, 128, 128}, {3, 3, 64, 64}, {5, 5, 24, 24}};
    case Variant::short_conv: return {{0, 0, 0, 256}, {0, 0, 0, 2048}, {0, 0, 0, 37}};
    default: return {{2, 4, 128, 128}, {2, 2, 96, 192}, {1, 3, 64, 40}, {4, 4, 24, 8}};
  }
}

AttentionSpec spec_of(Variant variant, const LinearDims& dims, int taps, DType q, DType kv) {
  AttentionSpec spec{.variant = variant,
                     .num_qo_heads = dims.v_heads,
                     .num_kv_heads = dims.k_heads,
                     .sm_scale = 1.0f,
                     .q_dtype = q,
                     .o_dtype = q,
                     .kv_dtype = kv,
                     .linear_num_k_heads = dims.k_heads,
                     .linear_num_v_heads = dims.v_heads,
                     .linear_head_dim_k = dims.dk,
                     .linear_head_dim_v = dims.dv};
  if (variant == Variant::short_conv) {
    spec.linear_head_dim_v = 0;
    spec.conv_dim = dims.dv;
  } else if (variant != Variant::lightning) {
    spec.conv_dim = 2 * dims.k_heads * dims.dk + dims.v_heads * dims.dv;
  }
  spec.conv_kernel = variant == Variant::lightning ? 0 : taps;
  return spec;
}

enum Factor : std::size_t {
  kForm,
  kQDtype,
  kKvDtype,
  kDims,
  kTaps,
  kGates,
  kLengths,
  kRich,
  kStrided,
  kNumFactors,
};

constexpr int kTapCounts[] = {4, 3, 2};
constexpr Gates kAllGates[] = {Gates::typical, Gates::forgetful, Gates::lasting, Gates::steep};

/// Requests as {rows, length with history}: more keys than rows means that there is a history.
const std::vector<RequestShape> kLengthSets[] = {
    {{.qo_len = 70, .kv_len = 131},
     {.qo_len = 1, .kv_len = 1},
     {.qo_len = 9, .kv_len = 9, .padding = true},
     {.qo_len = 0, .kv_len = 9},
     {.qo_len = 5, .kv_len = 8}},
    {{.qo_len = 64, .kv_len = 64},
     {.qo_len = 65, .kv_len = 66},
     {.qo_len = 63, .kv_len = 63},
     {.qo_len = 1, .kv_len = 100}},
    {{.qo_len = 130, .kv_len = 130}, {.qo_len = 8, .kv_len = 8}, {.qo_len = 17, .kv_len = 18}},
};

const std::vector<RequestShape> kDecodeSets[] = {
    {{1, 9}, {1, 1}, {.qo_len = 1, .kv_len = 5, .padding = true}, {1, 70}},
    {{1, 2}},
    {{1, 3}, {1, 4}, {1, 1}, {1, 5}, {1, 9}, {1, 2}, {1, 6}},
};

class LinearCases {
 public:
  LinearCases(const Capability& row, Variant variant)
      : row_(row), variant_(variant), dims_(dims_of(variant)) {
    for (const Phase phase : row.phases) {
      if (phase == Phase::decode) {
        forms_.push_back(BatchForm::decode);
        continue;
      }
      forms_.push_back(BatchForm::extend);
      if (has(Feature::mixed_batch)) forms_.push_back(BatchForm::mixed);
      if (has(Feature::draft_extend)) forms_.push_back(BatchForm::draft_extend);
    }
  }

  std::vector<Case> make() {
    pairs();
    if (row_.phases.contains(Phase::prefill)) prefill();
    if (row_.phases.contains(Phase::decode)) decode();
    return std::move(cases_);
  }

  [[nodiscard]] Case typical(BatchForm form, std::vector<RequestShape> requests) const {
    return of(dims_.front(), row_.q_dtypes.contains(DType::bf16) ? DType::bf16 : row_.q_dtypes[0],
              form, std::move(requests), 7);
  }

 private:
  [[nodiscard]] bool has(Feature f) const { return row_.features.has(f); }
  [[nodiscard]] FeatureSet if_has(Feature f) const { return has(f) ? FeatureSet(f) : FeatureSet(); }

  [[nodiscard]] Case of(const LinearDims& dims, DType q, BatchForm form,
                        std::vector<RequestShape> requests, std::uint64_t seed) const {
    const DType kv = row_.kv_dtypes.contains(q) ? q : row_.kv_dtypes[0];
    Case one{.form = form, .want_lse = false, .requests = std::move(requests), .seed = seed};
    one.spec = spec_of(variant_, dims, 4, q, kv);
    return one;
  }

  /// The first dtype of the row, narrow heads that fill no vector, rows apart.
  [[nodiscard]] Case awkward(BatchForm form, std::vector<RequestShape> requests) const {
    Case one = of(dims_.back(), row_.q_dtypes[0], form, std::move(requests), 8);
    one.strided = true;
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

  void pairs() {
    std::vector<int> sizes(kNumFactors);
    sizes[kForm] = static_cast<int>(forms_.size());
    sizes[kQDtype] = static_cast<int>(row_.q_dtypes.size());
    sizes[kKvDtype] = static_cast<int>(row_.kv_dtypes.size());
    sizes[kDims] = static_cast<int>(dims_.size());
    sizes[kTaps] = variant_ == Variant::lightning ? 1 : 3;
    sizes[kGates] = variant_ == Variant::short_conv ? 1 : 4;
    sizes[kLengths] = 3;
    sizes[kRich] = sizes[kStrided] = 2;
    const auto rows = pairwise(
        sizes, [](const FactorRow&) { return true; }, 1);
    const auto chosen = each_value_once(rows);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      const auto at = [&](Factor f) { return static_cast<std::size_t>(rows[n][f]); };
      const BatchForm form = forms_[at(kForm)];
      Case one{.form = form,
               .want_lse = false,
               .strided = at(kStrided) != 0,
               .requests = form == BatchForm::decode ? kDecodeSets[at(kLengths)]
                                                     : kLengthSets[at(kLengths)],
               .gates = kAllGates[at(kGates)],
               .seed = 1000 + 2 * n + at(kRich)};
      one.spec = spec_of(variant_, dims_[at(kDims)], kTapCounts[at(kTaps)],
                         row_.q_dtypes[at(kQDtype)], row_.kv_dtypes[at(kKvDtype)]);
      const bool smoke = std::find(chosen.begin(), chosen.end(), n) != chosen.end();
      add(std::move(one), kLinearMatchesReference, smoke);
    }
  }

  void prefill() {
    for (const Case& one :
         {typical(BatchForm::extend, kLengthSets[0]), awkward(BatchForm::extend, kLengthSets[0])}) {
      contract(one);
      add(one, kResumesAnywhere, true);
    }
    if (has(Feature::batch_invariant)) {
      const std::vector<RequestShape> cut{{300, 300}, {1, 1}, {190, 200}, {64, 64}, {65, 65}};
      for (const Case& one : {typical(BatchForm::extend, cut), awkward(BatchForm::extend, cut)})
        add(one, kLinearCutsKeepBits, true, Feature::batch_invariant);
      // A kernel may treat a long prompt otherwise where it has few neighbours.
      add(typical(BatchForm::extend, {{1100, 1100}, {70, 80}, {9, 9}}),
          kLinearNeighboursDoNotMatter, false, Feature::batch_invariant, "very_unequal");
    }
    if (row_.phases.contains(Phase::decode)) {
      const std::vector<RequestShape> short_ones{{19, 40}, {70, 70}, {1, 1}};
      add(typical(BatchForm::extend, short_ones), kLinearPrefillEqualsDecodes, true);
      add(awkward(BatchForm::extend, short_ones), kLinearPrefillEqualsDecodes, true);
    }
    if (has(Feature::target_verify)) {
      // Chains shorter and longer than a convolution's history and a chunk, with a past and
      // without.
      const std::vector<RequestShape> chains{
          {5, 9}, {8, 8}, {2, 40}, {1, 1}, {.qo_len = 4, .kv_len = 4, .padding = true}, {70, 71}};
      add(typical(BatchForm::target_verify, chains), kDraftsCanBeForgotten, true);
      add(awkward(BatchForm::target_verify, chains), kDraftsCanBeForgotten, true);
    }
    add(typical(BatchForm::extend, {{5, 5}, {9, 12}, {3, 3}}), kLinearRefusesHostileInput, true);
    add(typical(BatchForm::extend, {{70, 80}}), kHugeStatePool, false);
    add(typical(BatchForm::extend, {{600, 600}, {1, 7}}), kLinearMatchesReference, false, {},
        "very_unequal");
    // Every length around a block and a chunk.
    std::vector<RequestShape> tails;
    for (const std::int32_t n : {1, 2, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129})
      tails.push_back({n, n + n % 2});
    add(awkward(BatchForm::extend, std::move(tails)), kLinearMatchesReference, true, {}, "tails");
    for (const Gates gates : {Gates::forgetful, Gates::lasting, Gates::steep}) {
      if (variant_ == Variant::short_conv) break;
      // Extreme gates over many chunks, in the widest dtype, where errors would show.
      Case one =
          of(dims_.front(), row_.q_dtypes[0], BatchForm::extend, {{300, 300}, {200, 201}}, 11);
      one.gates = gates;
      add(one, kLinearMatchesReference, true, {}, "many_chunks");
    }
  }

  void decode() {
    for (const Case& one :
         {typical(BatchForm::decode, kDecodeSets[0]), awkward(BatchForm::decode, kDecodeSets[0])})
      contract(one);
    const std::vector<RequestShape> growing{
        {6, 6}, {6, 9}, {.qo_len = 6, .kv_len = 6, .padding = true}};
    add(typical(BatchForm::decode, growing), kLinearRefreshEqualsFresh, true);
    add(awkward(BatchForm::decode, growing), kLinearRefreshEqualsFresh, true);
    if (has(Feature::cuda_graph))
      add(typical(BatchForm::decode, growing), kLinearGraphReplay, true, Feature::cuda_graph);
    add(typical(BatchForm::idle, {}), kLinearMatchesReference, true, {}, "idle");
    add(typical(BatchForm::decode, {{1, 9}}), kHugeStatePool, false);
    const RequestShape padding{.qo_len = 1, .kv_len = 1, .padding = true};
    add(typical(BatchForm::decode, {padding, padding}), kLinearMatchesReference, true, {},
        "all_padding");
    add(awkward(BatchForm::decode, std::vector<RequestShape>(300, {1, 2})), kLinearMatchesReference,
        false, {}, "300_requests");
  }

  /// Properties that every batch has.
  void contract(const Case& one) {
    add(one, kSlotsPermuted, true);
    if (has(Feature::deterministic)) add(one, kLinearDeterministic, true, Feature::deterministic);
    add(one, kLinearPlanServesLayers, true);
    add(one, kLinearWorkspaceExact, true);
    add(one, kLinearBoundsCoverSmallerBatches, false);
    add(one, kLinearNeighboursDoNotMatter, true, if_has(Feature::batch_invariant));
  }

  const Capability& row_;
  Variant variant_;
  std::vector<LinearDims> dims_;
  std::vector<BatchForm> forms_;
  std::vector<Case> cases_;
};

}  // namespace

std::vector<Case> make_linear_cases(const Capability& row, Variant variant) {
  return LinearCases(row, variant).make();
}

Case plain_linear_case(const Capability& row, Phase phase) {
  return LinearCases(row, row.variants[0])
      .typical(phase == Phase::decode ? BatchForm::decode : BatchForm::extend, {{1, 1}});
}

}  // namespace attune::conformance
