#include "conformance/hard_cases.hpp"

#include <utility>

#include "conformance/properties.hpp"

namespace attune::conformance {

void HardCases::kept_keys(BatchForm form, const std::vector<RequestShape>& uneven,
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
    with(one, kMatchesReference, true, 0, true, "lists");
    with(one, kPagesPermuted, smoke, 0, true, "lists");
    with(one, kPlanServesLayers, false, 0, true, "lists");
    with(one, kWorkspaceExact, false, 0, true, "lists");
    with(one, kMatchesReference, smoke, 1, false, "one_key_kept");
    with(one, kMatchesReference, smoke, 333, false, "exactly_all_kept");
    with(one, kAllKeptEqualsDense, smoke, 333, false, "");
    with(one, kAllKeptEqualsDense, smoke, 700, false, "");
  }
  Case deepseek = typical(form, uneven);
  deepseek.spec.index_num_heads = 64;
  deepseek.spec.index_head_dim = 128;
  with(deepseek, kMatchesReference, true, 0, false, "deepseek_indexer");
  if (form == BatchForm::decode) {
    with(typical(form, growing), kRefreshEqualsFresh, true, 0, true, "lists");
    if (has(Feature::cuda_graph))
      with(typical(form, growing), kGraphReplay, true, 0, true, "lists");
  } else if (has(Feature::chunked_prefix)) {
    with(typical(form, growing), kChunkedEqualsWhole, true, 0, true, "lists");
  }
}

}  // namespace attune::conformance
