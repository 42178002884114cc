#include "conformance/hard_cases.hpp"

#include <utility>

#include "conformance/properties.hpp"

namespace attune::conformance {

void HardCases::decode() {
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
  chunks(BatchForm::decode, uneven, growing);
  flex(BatchForm::decode);
  add(typical(BatchForm::decode, {{1, 4096}, {1, 33}, {1, 1}}), kMatchesReference, true, {},
      "very_unequal");
  add(typical(BatchForm::idle, {}), kMatchesReference, true, {}, "idle");
  add(typical(BatchForm::decode, {{1, 0}, {1, 0}, {1, 0}}), kMatchesReference, true, {},
      "no_keys_at_all");
  many_requests();
  windows();
  large_scores();
}

void HardCases::device_planning(const std::vector<RequestShape>& uneven) {
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

void HardCases::many_requests() {
  Case one = awkward(BatchForm::decode, {});
  one.spec = base_spec(variant_, smallest_dims(), 1, one.spec.q_dtype, one.spec.kv_dtype);
  if (!is_latent(variant_)) one.spec.num_qo_heads = one.spec.num_kv_heads = 1;
  if (variant_ == Variant::minimax_sparse) one.spec.index_num_heads = 1;
  if (!row_.gqa_group_sizes.empty()) one.spec.num_qo_heads = row_.gqa_group_sizes[0];
  one.requests.assign(65536, {1, 1});
  one.requests[0].kv_len = 257;
  one.requests[32767].kv_len = 3;
  one.requests[65535].kv_len = 129;
  add(one, kMatchesReference, false, {}, "65536_requests");
}

void HardCases::windows() {
  if (!has(Feature::sliding_window)) return;
  std::vector<RequestShape> lengths;
  for (std::int32_t kv = 30; kv < 30 + 64; ++kv) lengths.push_back({1, kv});
  Case one = typical(BatchForm::decode, std::move(lengths));
  one.spec.window_left = 31;
  add(one, kMatchesReference, true, {}, "every_window_start");
}

void HardCases::large_scores() {
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

}  // namespace attune::conformance
