#include "plan/split_kv.hpp"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

namespace attune::plan {
namespace {

TEST(SplitKv, PartsCoverTheRangeOnceAndBeginAtGranules) {
  for (std::int64_t begin : {0, 1, 63, 64, 1000}) {
    for (std::int64_t keys : {0, 1, 255, 256, 257, 1024, 100000}) {
      for (const auto& [target, shrinking] : {std::pair{1, false},
                                              {2, false},
                                              {7, false},
                                              {64, false},
                                              {2, true},
                                              {7, true},
                                              {64, true}}) {
        const SplitPolicy policy{.target_parts = target, .shrinking = shrinking};
        const KvSplit split = split_kv(policy, {begin, begin + keys}, 3.0, 3.0);
        std::int64_t at = begin;
        for (std::int64_t i = 0; i < split.num_parts; ++i) {
          const auto part = split.part(i);
          EXPECT_EQ(part.begin, at);
          EXPECT_TRUE(part.begin < part.end || keys == 0);
          if (i > 0) {
            EXPECT_EQ(part.begin % policy.granule, 0);
          }
          at = part.end;
        }
        EXPECT_EQ(at, begin + keys);
        if (split.num_parts > 1) {
          EXPECT_LE(split.num_parts, max_split_parts(policy, 1, 1, begin + keys, begin + keys));
        }
      }
    }
  }
}

TEST(SplitKv, OnlyTheHeavyBlockIsCut) {
  const SplitPolicy policy{.target_parts = 8};
  // One of 100k keys among 100 of 1k: the long one is half of all work, so about four parts.
  EXPECT_EQ(split_kv(policy, {0, 1000}, 1000, 200000).num_parts, 1);
  const std::int64_t parts = split_kv(policy, {0, 100000}, 100000, 200000).num_parts;
  EXPECT_GE(parts, 4);
  EXPECT_LE(parts, 5);
}

TEST(SplitKv, ShrinkingPartsHalveTheirLength) {
  const SplitPolicy policy{.target_parts = 16, .shrinking = true};
  const KvSplit split = split_kv(policy, {0, 16384}, 1.0, 1.0);
  ASSERT_EQ(split.num_parts, 20);
  for (std::int64_t i = 0; i < split.num_parts; ++i) {
    const attention::KeyRange part = split.part(i);
    EXPECT_EQ(part.end - part.begin, std::max<std::int64_t>(2048 >> (i / 4), 256)) << i;
  }
  // A block of few parts, or of few keys, has equal ones.
  EXPECT_EQ(split_kv(policy, {0, 16384}, 1.0, 5.0).num_parts, 4);
  EXPECT_EQ(split_kv(policy, {0, 1000}, 1.0, 1.0).num_parts, 4);
}

TEST(SplitKv, ShrinkingPartsStayWithinTheBound) {
  for (std::int64_t target = 1; target <= 200; ++target) {
    for (std::int64_t keys = 1; keys <= 40000; keys += 977) {
      for (double cost : {0.1, 0.33, 0.5, 1.0}) {
        const SplitPolicy policy{.target_parts = target, .shrinking = true};
        const KvSplit split = split_kv(policy, {63, 63 + keys}, cost, 1.0);
        EXPECT_EQ(split.part(split.num_parts - 1).end, 63 + keys);
        EXPECT_LE(static_cast<double>(split.num_parts),
                  std::max(1.0, 3.0 * cost * static_cast<double>(target)));
      }
    }
  }
}

TEST(SplitKv, ABlockOfFewPartsMayStayWhole) {
  const SplitPolicy policy{.target_parts = 64, .whole_parts = 2.0};
  EXPECT_EQ(split_kv(policy, {0, 100000}, 1.0, 32.0).num_parts, 1);
  EXPECT_EQ(split_kv(policy, {0, 100000}, 1.0, 16.0).num_parts, 4);
}

TEST(SplitKv, OneThreadNeverSplits) {
  const SplitPolicy policy{.target_parts = 1};
  EXPECT_EQ(split_kv(policy, {0, 1 << 20}, 1.0, 1.0).num_parts, 1);
  EXPECT_EQ(max_split_parts(policy, 8, 8, 1 << 20, 1 << 20), 0);
}

TEST(SplitKv, FixedChunkIgnoresNeighbours) {
  const SplitPolicy policy{.target_parts = 8, .fixed_chunk = 1000};
  for (double total : {1.0, 1e9}) {
    const KvSplit split = split_kv(policy, {5, 5000}, 1.0, total);
    EXPECT_EQ(split.kv_chunk_size, 1024);
    EXPECT_EQ(split.num_parts, 5);
    EXPECT_EQ(split.part(0).begin, 5);
    EXPECT_EQ(split.part(1).begin, 1024);
    EXPECT_EQ(split.part(4).end, 5000);
  }
  EXPECT_EQ(max_split_parts(policy, 4, 10, 1024, 10240), 0);
  EXPECT_GE(max_split_parts(policy, 1, 1, 5000, 5000), 5);
}

}  // namespace
}  // namespace attune::plan
