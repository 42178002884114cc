#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <attune/flex.hpp>
#include <attune/validate.hpp>

#include "attention/block_table.hpp"

namespace attune::attention {
namespace {

using ::testing::HasSubstr;

/// Requests by their queries and keys, ragged.
struct Scene {
  std::vector<std::int32_t> qo_indptr{0}, kv_indptr{0};
  std::vector<std::int64_t> kv_offset;

  explicit Scene(const std::vector<std::pair<int, int>>& lengths) {
    for (const auto& [queries, keys] : lengths) {
      qo_indptr.push_back(qo_indptr.back() + queries);
      kv_indptr.push_back(kv_indptr.back() + keys);
    }
  }
  [[nodiscard]] BatchView batch() const {
    return {.form = BatchForm::extend,
            .source = KvSource::ragged,
            .qo_indptr = qo_indptr,
            .kv_indptr = kv_indptr,
            .kv_offset = kv_offset};
  }
};

AttentionSpec masked_spec(int heads = 1) {
  return {.num_qo_heads = heads,
          .num_kv_heads = 1,
          .head_dim_qk = 8,
          .head_dim_vo = 8,
          .sm_scale = 1.0f,
          .block_mask = true};
}

BlockTable table_of(const BlockMaskView& view) {
  return {view.num_heads, view.indptr.data(), view.blocks.data(), view.bits.data()};
}

TEST(BlockMask, CausalBlocksAreHiddenMixedOrWhole) {
  const Scene scene({{300, 300}});
  const auto causal = [](const FlexPair& at) { return at.kv_position <= at.q_position; };
  const auto mask = make_block_mask(mask_function(causal), scene.batch(), 1);
  ASSERT_TRUE(mask.ok());
  const BlockMaskView view = mask->view();
  EXPECT_EQ(std::vector<std::int32_t>(view.blocks.begin(), view.blocks.end()),
            (std::vector<std::int32_t>{0, kHiddenBlock, kHiddenBlock,  //
                                       kWholeBlock, 1, kHiddenBlock,   //
                                       kWholeBlock, kWholeBlock, 2}));
  EXPECT_EQ(view.bits.size(), 3u * kMaskBlockBytes);
  EXPECT_DOUBLE_EQ(mask->sparsity(), 3.0 / 9.0);
}

// Blocks must say what the function says, of every pair, whatever the lengths, heads and offsets.
TEST(BlockMask, SaysWhatTheFunctionSays) {
  Scene scene({{1, 1}, {5, 127}, {128, 128}, {129, 257}, {0, 40}, {3, 0}, {1, 400}, {200, 30}});
  scene.kv_offset = {0, 7, 1000000007, 0, 3, 2, 5, 64};
  const auto odd = [](const FlexPair& at) {
    if (at.request == 2) return true;
    return (at.q_position * 31 + at.kv_position * 17 + at.qo_head * 5 + at.request) % 7 < 3;
  };
  for (const int heads : {1, 3}) {
    const BatchView batch = scene.batch();
    const auto mask = make_block_mask(mask_function(odd), batch, heads);
    ASSERT_TRUE(mask.ok());
    const BlockTable table = table_of(mask->view());
    std::int64_t bits = 0;
    for (std::int64_t i = 0; i < batch.batch_size(); ++i)
      for (int h = 0; h < heads; ++h)
        for (std::int64_t q = 0; q < batch.qo_len(i); ++q)
          for (std::int64_t k = 0; k < batch.kv_len(i); ++k) {
            const std::int64_t first = batch.first_kv_position(i);
            const FlexPair at{.request = i,
                              .qo_head = h,
                              .q_position = first + batch.kv_len(i) - batch.qo_len(i) + q,
                              .kv_position = first + k};
            ASSERT_EQ(table.sees(i, h, q, k, batch.kv_len(i)), odd(at))
                << "request " << i << " head " << h << " query " << q << " key " << k;
            bits += i != 2 && odd(at) ? 1 : 0;
          }
    // And nothing beyond them: a kernel may look at whole blocks.
    std::int64_t set = 0;
    for (const std::uint8_t byte : mask->view().bits) set += __builtin_popcount(byte);
    EXPECT_LE(set, bits);
  }
}

TEST(BlockMask, NeedsAFunctionAHeadAndLengths) {
  const Scene scene({{4, 4}});
  const auto all = [](const FlexPair&) { return true; };
  EXPECT_THAT(make_block_mask({}, scene.batch(), 1).status().text(), HasSubstr("mask function"));
  EXPECT_THAT(make_block_mask(mask_function(all), scene.batch(), 0).status().text(),
              HasSubstr("have 0"));
  BatchView without = scene.batch();
  without.kv_indptr = {};
  EXPECT_THAT(make_block_mask(mask_function(all), without, 1).status().text(),
              HasSubstr("kv_indptr"));
  EXPECT_TRUE(make_block_mask(mask_function(all), BatchView{}, 1).ok()) << "an idle step";
}

TEST(BlockMask, ABatchTakesOnlyAMaskOfItsOwn) {
  const Scene scene({{4, 200}, {130, 130}});
  const auto causal = [](const FlexPair& at) { return at.kv_position <= at.q_position; };
  const auto mask = make_block_mask(mask_function(causal), scene.batch(), 1);
  ASSERT_TRUE(mask.ok());
  BatchView batch = scene.batch();
  batch.block_mask = mask->view();
  EXPECT_TRUE(validate_batch(batch, masked_spec(), 1).ok());

  const auto complaint = [&](const std::function<void(BatchView&, AttentionSpec&)>& change) {
    BatchView changed = batch;
    AttentionSpec spec = masked_spec(4);
    change(changed, spec);
    return validate_batch(changed, spec, 1).status().text();
  };
  EXPECT_THAT(complaint([](BatchView&, AttentionSpec& s) { s.block_mask = false; }),
              HasSubstr("block_mask = false"));
  EXPECT_THAT(complaint([](BatchView& b, AttentionSpec&) { b.block_mask = {}; }),
              HasSubstr("want 3 entries, have 0"));
  EXPECT_THAT(complaint([](BatchView& b, AttentionSpec&) { b.block_mask.num_heads = 2; }),
              HasSubstr("all 4 query heads, have 2"));
  EXPECT_THAT(complaint([](BatchView& b, AttentionSpec&) { b.block_mask.num_heads = 4; }),
              HasSubstr("made for other lengths"));
  EXPECT_THAT(complaint([](BatchView& b, AttentionSpec&) {
                b.block_mask.blocks = b.block_mask.blocks.first(3);
              }),
              HasSubstr("there are 3 blocks"));
  EXPECT_THAT(complaint([](BatchView& b, AttentionSpec&) {
                b.block_mask.bits = b.block_mask.bits.first(9);
              }),
              HasSubstr("is no block: there are bits of 0"));
  const Scene longer({{4, 300}, {130, 130}});
  EXPECT_THAT(complaint([&](BatchView& b, AttentionSpec&) {
                const BlockMaskView of_other = b.block_mask;
                b = longer.batch();
                b.block_mask = of_other;
              }),
              HasSubstr("request 0 of 4 queries and 300 keys has 3 blocks"));
}

TEST(BlockMask, ASpecAsksForOneMask) {
  AttentionSpec spec = masked_spec();
  EXPECT_TRUE(validate_spec(spec).ok());
  spec.custom_mask = true;
  EXPECT_THAT(validate_spec(spec).text(), HasSubstr("ask for one"));
  spec.custom_mask = false;
  spec.variant = Variant::dual_chunk;
  spec.dual_chunk_len = 8;
  EXPECT_THAT(validate_spec(spec).text(), HasSubstr("belong to gqa, not to dual_chunk"));
}

TEST(ScoreFunction, IsAskedOfEachKeyOfARun) {
  const auto change = [](float s, const FlexPair& at) {
    return s + static_cast<float>(100 * at.qo_head + at.q_position - at.kv_position);
  };
  const ScoreMod mod = score_function(change);
  std::vector<float> scores{0.0f, 0.5f, 1.0f};
  mod.apply({.first = {.qo_head = 2, .q_position = 9, .kv_position = 4},
             .scores = scores.data(),
             .count = 3},
            mod.context);
  EXPECT_EQ(scores, (std::vector<float>{205.0f, 204.5f, 204.0f}));
}

}  // namespace
}  // namespace attune::attention
