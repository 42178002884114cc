// Which groups become levels: nesting, cost, room.
#include "plan/cascade.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "plan/paged_batch.hpp"

namespace attune::plan {
namespace {

constexpr std::int32_t kPage = 16;

/// Decodes of one row a token; every page id is its place in its request's table.
struct Batch : PagedBatch {
  explicit Batch(const std::vector<std::int32_t>& kv_lens, std::int32_t qo_len = 1)
      : PagedBatch(BatchForm::extend, kPage, each_with(qo_len, kv_lens), 0) {
    for (const std::int32_t kv_len : kv_lens)
      for (std::int32_t r = 0; r < qo_len; ++r) visible.push_back({0, kv_len - qo_len + r + 1});
  }
  std::vector<attention::KeyRange> visible;
};

constexpr std::int64_t kRoom = 1 << 20;
const CascadeCosts kCosts{.decode_read = 8.0,
                          .decode_row = 1.0,
                          .block_read = 12.0,
                          .block_row = 1.0,
                          .merge_row = 64.0,
                          .rows_a_token = 1,
                          .block_rows = 384,
                          .units = 8,
                          .workers = 2,
                          .least_keys = 256};

Cascade levels(const Batch& batch, const std::vector<PrefixGroup>& groups,
               CascadeMode mode = CascadeMode::always, std::int64_t room = kRoom) {
  BatchView view = batch.view;
  view.prefix_groups = groups;
  return find_levels(view, batch.visible, kCosts, mode, room);
}

TEST(Cascade, LevelsLieEndToEnd) {
  const Batch batch({300, 320, 200, 170, 170});
  // Inner ones first: the order does not matter.
  const Cascade c = levels(batch, {{0, 2, 14}, {0, 4, 10}, {0, 1, 18}});
  ASSERT_EQ(c.levels.size(), 3u);
  EXPECT_EQ(c.levels[0].num_tokens, 4);
  EXPECT_EQ(c.levels[0].keys.end, 160);
  EXPECT_EQ(c.levels[0].outer, -1);
  EXPECT_EQ(c.levels[1].keys.begin, 160);
  EXPECT_EQ(c.levels[1].keys.end, 224);
  EXPECT_EQ(c.levels[1].outer, 0);
  EXPECT_EQ(c.levels[2].keys.begin, 224);
  EXPECT_EQ(c.innermost, (std::vector<std::int32_t>{2, 1, 0, 0, -1}));
  EXPECT_EQ(c.own_begin(0), 288);
  EXPECT_EQ(c.own_begin(3), 160);
  EXPECT_EQ(c.own_begin(4), 0);
}

TEST(Cascade, GroupsThatDoNotNestArePassedOver) {
  const Batch batch({200, 200, 200, 200});
  const Cascade overlap = levels(batch, {{0, 3, 4}, {1, 3, 8}});
  ASSERT_EQ(overlap.levels.size(), 1u);
  EXPECT_EQ(overlap.innermost, (std::vector<std::int32_t>{0, 0, 0, -1}));
  // The same pages under two levels that end alike: no single level is the outer one.
  EXPECT_EQ(levels(batch, {{0, 2, 4}, {2, 2, 4}, {0, 4, 8}}).levels.size(), 2u);
  // Twice the same group.
  EXPECT_EQ(levels(batch, {{0, 4, 8}, {0, 4, 8}}).levels.size(), 1u);
}

TEST(Cascade, NothingWhereNothingIsShared) {
  const Batch batch({200, 200});
  EXPECT_TRUE(levels(batch, {}).innermost.empty());
  EXPECT_TRUE(levels(batch, {{0, 2, 8}}, CascadeMode::off).innermost.empty());
  const Batch no_rows({200, 200}, 0);
  EXPECT_TRUE(levels(no_rows, {{0, 2, 8}}).levels.empty());
}

TEST(Cascade, TheCostDecides) {
  const auto taken = [](std::int32_t requests, std::int32_t pages) {
    const Batch batch(std::vector<std::int32_t>(static_cast<std::size_t>(requests), 40000));
    return levels(batch, {{0, requests, pages}}, CascadeMode::by_cost).levels.size();
  };
  EXPECT_EQ(taken(64, 2048), 1u);
  EXPECT_EQ(taken(8, 64), 1u);
  // Nobody to share with; one page is less work than joining its states.
  EXPECT_EQ(taken(1, 2048), 0u);
  EXPECT_EQ(taken(64, 1), 0u);
}

TEST(Cascade, AnOuterLevelThatDoesNotPayLeavesItsKeysToTheInnerOnes) {
  const Batch batch(std::vector<std::int32_t>(16, 20000));
  const Cascade c = levels(batch, {{0, 16, 1}, {0, 8, 1000}}, CascadeMode::by_cost);
  ASSERT_EQ(c.levels.size(), 1u);
  EXPECT_EQ(c.levels[0].num_requests, 8);
  EXPECT_EQ(c.levels[0].keys.begin, 0);
}

TEST(Cascade, WhatNobodySeesIsNotShared) {
  Batch batch(std::vector<std::int32_t>(16, 4000));
  for (auto& range : batch.visible) range.begin = range.end - 100;
  EXPECT_TRUE(levels(batch, {{0, 16, 128}}).levels.empty());
  // The window reaches 10 keys into the prefix: too few to pay.
  for (auto& range : batch.visible) range.begin = 2038;
  EXPECT_EQ(levels(batch, {{0, 16, 128}}).levels.size(), 1u);
  EXPECT_TRUE(levels(batch, {{0, 16, 128}}, CascadeMode::by_cost).levels.empty());
}

TEST(Cascade, FullBlocksGainNothing) {
  // Prefills of 1000 rows each fill their blocks by themselves.
  const Batch batch({3000, 3000, 3000, 3000}, 1000);
  EXPECT_TRUE(levels(batch, {{0, 4, 100}}, CascadeMode::by_cost).levels.empty());
}

TEST(Cascade, NoMoreStatesThanTheWorkspaceHolds) {
  const Batch batch({300, 300, 300, 300});
  const std::vector<PrefixGroup> groups{{0, 4, 4}, {0, 4, 8}, {0, 2, 12}};
  const std::int64_t row = 8;  // of one token: query heads
  EXPECT_EQ(levels(batch, groups, CascadeMode::always, 14 * row).levels.size(), 3u);
  EXPECT_EQ(levels(batch, groups, CascadeMode::always, 14 * row - 1).levels.size(), 2u);
  // The outer one does not fit, an inner one takes its keys, too.
  const Cascade inner = levels(batch, groups, CascadeMode::always, 8 * row - 1);
  ASSERT_EQ(inner.levels.size(), 1u);
  EXPECT_EQ(inner.levels[0].num_requests, 2);
  EXPECT_EQ(levels(batch, groups, CascadeMode::always, 4 * row - 1).levels.size(), 0u);
}

}  // namespace
}  // namespace attune::plan
