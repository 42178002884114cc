#include <algorithm>
#include <utility>

#include "conformance/hard_cases.hpp"
#include "conformance/properties.hpp"

namespace attune::conformance {

void HardCases::kept_blocks(BatchForm form, const std::vector<RequestShape>& growing) {
  const auto with = [&](Case one, const Property& property, bool smoke, std::string_view label) {
    add(std::move(one), property, smoke, {}, label);
  };
  const auto shapes = [form](std::initializer_list<std::int32_t> lengths) {
    std::vector<RequestShape> requests;
    for (const std::int32_t kv : lengths)
      requests.push_back({form == BatchForm::decode ? 1 : std::min(kv, 6), kv});
    return requests;
  };
  // Around blocks of 16 and 7 keys, and around what 4 and 3 of them hold.
  const std::vector<RequestShape> around = shapes(
      {0, 1, 6, 7, 8, 15, 16, 17, 20, 21, 22, 48, 49, 63, 64, 65, 79, 80, 81, 128, 129, 333});
  struct Keeps {
    int topk, init, local;
    std::string_view label;
  };
  constexpr Keeps kKeeps[] = {{1, 0, 0, "one_block"},
                              {1, 0, 1, "own_block"},
                              {3, 0, 0, "none_always"},
                              {4, 2, 2, "always_ones_alone"},
                              {5, 2, 1, "first_and_last"}};
  for (const bool typically : {true, false}) {
    Case one = typically ? typical(form, around) : awkward(form, around);
    with(one, kMatchesReference, true, "around");
    with(one, kPagesPermuted, typically, "around");
    one.given_lists = true;
    with(one, kMatchesReference, true, "lists");
    with(one, kPagesPermuted, typically, "lists");
    with(one, kPlanServesLayers, false, "lists");
    with(one, kWorkspaceExact, false, "lists");
    one.given_lists = false;
    for (const Keeps& keeps : kKeeps) {
      Case other = one;
      other.spec.index_topk = keeps.topk;
      other.spec.index_init_blocks = keeps.init;
      other.spec.index_local_blocks = keeps.local;
      with(other, kMatchesReference, typically, keeps.label);
    }
    // 333 keys are 21 blocks of 16, or 48 of 7.
    for (const int topk : {typically ? 21 : 48, 700}) {
      Case all = one;
      all.spec.index_topk = topk;
      with(all, kAllKeptEqualsDense, typically, "");
    }
    if (row_.device == DeviceKind::cpu) {  // elsewhere blocks are whole pages
      one.spec.index_block_size = 1;
      with(one, kMatchesReference, false, "blocks_of_one_key");
    }
  }
  // MiniMax-M3's own: 64 query heads, 4 KV heads, the 16 best of blocks of 128 keys.
  Case own = typical(form, shapes({2047, 2048, 2049, 2177, 5000}));
  own.page_size = pick(factors_.page_size, std::int32_t{128});
  own.spec.num_kv_heads = own.spec.index_num_heads = 4;
  own.spec.num_qo_heads = 4 * (row_.gqa_group_sizes.empty() ? 16 : pick(factors_.group, 16));
  own.spec.index_topk = 16;
  own.spec.index_block_size = 128;
  with(own, kMatchesReference, form == BatchForm::decode, "minimax");
  if (form != BatchForm::decode) shared_blocks(form);
  Case steps = typical(form, growing);
  steps.given_lists = true;
  if (form == BatchForm::decode) {
    with(steps, kRefreshEqualsFresh, true, "lists");
    if (has(Feature::cuda_graph)) with(steps, kGraphReplay, true, "lists");
  } else if (has(Feature::chunked_prefix)) {
    with(steps, kChunkedEqualsWhole, true, "lists");
  }
}

/// So many queries that a GPU takes them by tiles, whose rows share blocks of 128 keys: tiles that end
/// within a block and with it, requests that see fewer keys than a tile has rows, a list a row.
void HardCases::shared_blocks(BatchForm form) {
  Case one = typical(form, {{130, 1000}, {129, 385}, {1, 128}, {3, 129}, {0, 7}, {5, 5}});
  one.page_size = pick(factors_.page_size, std::int32_t{128});
  one.spec.num_qo_heads =
      one.spec.num_kv_heads * (row_.gqa_group_sizes.empty() ? 16 : pick(factors_.group, 16));
  one.spec.index_topk = 3;
  one.spec.index_block_size = 128;
  add(one, kMatchesReference, true, {}, "shared_blocks");
  Case other = one;
  other.layout = factors_.layout.back();
  other.page_size = pick(factors_.page_size, std::int32_t{16});
  other.spec.num_qo_heads =
      other.spec.num_kv_heads * (row_.gqa_group_sizes.empty() ? 4 : pick(factors_.group, 4));
  other.spec.index_init_blocks = 1;
  other.spec.kv_scales = has(Feature::kv_scales);
  other.given_lists = true;
  add(other, kPagesPermuted, true, {}, "shared_blocks");
  add(other, kMatchesReference, false, {}, "shared_blocks");
}

}  // namespace attune::conformance
