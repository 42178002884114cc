#include "conformance/hard_cases.hpp"

#include <utility>

#include "conformance/properties.hpp"

namespace attune::conformance {

void HardCases::kept_keys(BatchForm form, const std::vector<RequestShape>& uneven,
                          const std::vector<RequestShape>& growing) {
  if (variant_ == Variant::dsv4) return compressed_keys(form);
  if (variant_ == Variant::minimax_sparse) return kept_blocks(form, growing);
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
  // So many keys that blocks of a GPU share a query's scores, DeepSeek's shape.
  const std::int32_t queries = form == BatchForm::decode ? 1 : 5;
  Case longest = deepseek;
  longest.page_size = pick(factors_.page_size, std::int32_t{64});
  longest.requests = {{queries, 17000}, {queries, 4100}, {queries, 70}};
  longest.spec =
      base_spec(variant_, pick(factors_.dims, HeadDims{576, 512}), deepseek.spec.num_qo_heads,
                deepseek.spec.q_dtype, deepseek.spec.kv_dtype);
  longest.spec.index_num_heads = 64;
  longest.spec.index_head_dim = 128;
  with(longest, kMatchesReference, false, 333, false, "long");
  if (form == BatchForm::decode) {
    with(typical(form, growing), kRefreshEqualsFresh, true, 0, true, "lists");
    if (has(Feature::cuda_graph))
      with(typical(form, growing), kGraphReplay, true, 0, true, "lists");
  } else if (has(Feature::chunked_prefix)) {
    with(typical(form, growing), kChunkedEqualsWhole, true, 0, true, "lists");
  }
}

void HardCases::compressed_keys(BatchForm form) {
  const auto with = [&](Case one, const Property& property, bool smoke, std::string_view label) {
    add(std::move(one), property, smoke, {}, label);
  };
  // Lengths around windows of 4 tokens, a page of 16 and the window of 38 keys.
  std::vector<RequestShape> around;
  for (std::int32_t kv : {0, 1, 3, 4, 5, 7, 8, 15, 16, 17, 31, 37, 38, 39, 40, 127, 128, 129, 333})
    around.push_back({form == BatchForm::decode ? 1 : std::min(kv, 6), kv});
  std::vector<RequestShape> behind = around;
  for (std::size_t i = 0; i < behind.size(); ++i)
    behind[i].kv_offset = static_cast<std::int64_t>(i % 4) * 48;
  for (const Compression compression :
       {Compression::indexed, Compression::whole, Compression::none}) {
    for (const bool typically : {true, false}) {
      Case one = typically ? typical(form, around) : awkward(form, around);
      if (!typically) one.page_size = pick(factors_.page_size, std::int32_t{12});
      set_compression(one, compression);
      one.spec.sinks = has(Feature::sinks);
      with(one, kMatchesReference, true, "around");
      one.requests = behind;
      with(one, kMatchesReference, true, "behind_a_window");
      with(one, kPagesPermuted, typically, "behind_a_window");
    }
  }
  Case lists = typical(form, behind);
  lists.given_lists = true;
  with(lists, kMatchesReference, true, "lists");
  with(lists, kPagesPermuted, true, "lists");
  for (const int topk : {1, 83, 84, 700}) {  // 333 tokens are 83 compressed keys
    Case one = typical(form, around);
    one.spec.index_topk = topk;
    with(one, topk < 83 ? kMatchesReference : kAllKeptEqualsDense, true, "");
  }
  // DeepSeek-V4's own: 256-token pages, 128 to 1 and 4 to 1, a window of 128.
  for (const Compression compression : {Compression::indexed, Compression::whole}) {
    Case one = typical(form, {{1, 1500}, {1, 129}, {1, 256}});
    one.page_size = pick(factors_.page_size, std::int32_t{256});
    one.spec.window_left = 127;
    set_compression(one, compression);
    with(one, kMatchesReference, true, "deepseek_pages");
  }
}

}  // namespace attune::conformance
