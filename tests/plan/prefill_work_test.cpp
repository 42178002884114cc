#include "plan/prefill_work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "plan/paged_batch.hpp"

namespace attune::plan {
namespace {

struct Batch : PagedBatch {
  Batch(const std::vector<std::pair<std::int32_t, std::int32_t>>& requests, std::int32_t page_size)
      : PagedBatch(BatchForm::mixed, page_size, requests, 0) {}
};

/// Every (row, visible key) lies in exactly one item, and parts of a block agree with each other.
void expect_cover(const Batch& batch, const attention::MaskRule& rule, const PrefillShape& shape) {
  PrefillList list;
  list_prefill_work(batch.view, rule, shape, {}, list);
  std::map<std::pair<int, int>, std::vector<attention::PrefillItem>> blocks;
  for (const auto& item : list.items) blocks[{item.q_row, item.row_begin}].push_back(item);
  std::size_t rows_seen = 0;
  for (auto& [key, parts] : blocks) {
    std::sort(parts.begin(), parts.end(),
              [](const auto& a, const auto& b) { return a.part < b.part; });
    ASSERT_EQ(static_cast<int>(parts.size()), parts[0].parts);
    const auto& first = parts[0];
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].part, static_cast<int>(i));
      EXPECT_EQ(parts[i].first_place, first.first_place);
      EXPECT_EQ(parts[i].kv_begin % shape.key_tile, 0);
      if (i > 0) {
        EXPECT_EQ(parts[i].kv_begin, parts[i - 1].kv_end);
      }
    }
    if (first.parts > 1) {
      EXPECT_LE(first.first_place + first.parts, shape.max_parts);
    }
    const int rows = std::min(shape.rows, first.qo_len * shape.gqa_group_size - first.row_begin);
    rows_seen += static_cast<std::size_t>(rows);
    for (int row = first.row_begin; row < first.row_begin + rows; ++row) {
      const int position = first.kv_len - first.qo_len + row / shape.gqa_group_size;
      const auto keys = attention::visible_range(rule, position, 0, first.kv_len);
      if (keys.begin == keys.end) continue;
      EXPECT_GE(keys.begin, first.kv_begin);
      EXPECT_LE(keys.end, parts.back().kv_end);
    }
  }
  std::size_t rows_wanted = 0;
  for (std::int64_t i = 0; i < batch.view.batch_size(); ++i)
    if (batch.view.qo_len(i) != 1 || shape.decodes_too)
      rows_wanted += static_cast<std::size_t>(batch.view.qo_len(i) * shape.gqa_group_size);
  EXPECT_EQ(rows_seen, rows_wanted);
}

TEST(PrefillWork, EveryRowMeetsItsKeys) {
  const Batch batch({{1, 1000}, {7, 7}, {0, 30}, {5, 3}, {130, 5000}, {64, 64}, {3, 20000}}, 16);
  for (int group : {1, 4, 9, 71})
    for (int workers : {1, 132})
      for (int max_parts : {0, 3, 64})
        for (bool decodes_too : {false, true})
          for (const attention::MaskRule& rule :
               {attention::MaskRule{}, attention::MaskRule{.causal = false},
                attention::MaskRule{.causal = true, .window_left = 100},
                attention::MaskRule{.causal = true, .attention_chunk = 512}})
            expect_cover(batch, rule,
                         {.num_kv_heads = 2,
                          .gqa_group_size = group,
                          .workers = workers,
                          .max_parts = max_parts,
                          .decodes_too = decodes_too});
}

TEST(PrefillWork, FewRowsSplitTheirKeys) {
  const Batch batch({{4, 32768}}, 64);
  PrefillList list;
  list_prefill_work(batch.view, {},
                    {.num_kv_heads = 8, .gqa_group_size = 8, .workers = 264, .max_parts = 66}, {},
                    list);
  EXPECT_GE(list.work.num_items, 30);
  EXPECT_LE(list.work.num_items, 34);
}

TEST(PrefillWork, BoundsHoldTheItems) {
  const PrefillShape shape{.gqa_group_size = 4, .workers = 264, .max_parts = 66};
  const Batch batch({{1, 9}, {100, 100}, {33, 4000}, {2, 2}}, 16);
  PrefillList list;
  list_prefill_work(batch.view, {}, shape, {}, list);
  EXPECT_LE(list.work.num_items, max_prefill_items(shape, {.max_batch = 4, .max_qo_tokens = 136}));
}

TEST(PrefillWork, KeysEndWhereAllOfThemAreHidden) {
  Batch batch({{300, 700}, {1, 130}}, 16);
  constexpr std::int32_t h = kHiddenBlock;
  constexpr std::int32_t w = kWholeBlock;
  const std::vector<std::int64_t> indptr{0, 18, 20};
  const std::vector<std::int32_t> blocks{h, w, h, 0, h, h,  // tokens 0 to 127
                                         h, h, h, h, h, h,  // 128 to 255: nothing
                                         h, h, h, h, w, w,  // 256 to 299
                                         h, w};
  const std::vector<std::uint8_t> bits(static_cast<std::size_t>(kMaskBlockBytes));
  batch.view.block_mask = {.num_heads = 1, .indptr = indptr, .blocks = blocks, .bits = bits};
  PrefillList list;
  list_prefill_work(batch.view, {.causal = false}, {.rows = 64, .decodes_too = true}, {}, list);
  ASSERT_EQ(list.items.size(), 6u);
  for (const attention::PrefillItem& item : list.items) {
    const bool first = item.q_row == 0;
    EXPECT_EQ(item.mask_begin, first ? 0 : 18);
    const int begin = !first ? 128 : item.row_begin < 128 ? 128 : item.row_begin < 256 ? 0 : 512;
    const int end = !first ? 130 : item.row_begin < 128 ? 512 : item.row_begin < 256 ? 0 : 700;
    EXPECT_EQ(item.kv_begin, begin) << item.q_row << " " << item.row_begin;
    EXPECT_EQ(item.kv_end, end) << item.q_row << " " << item.row_begin;
  }
}

}  // namespace
}  // namespace attune::plan
