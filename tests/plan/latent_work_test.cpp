#include "plan/latent_work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/math.hpp"
#include "plan/paged_batch.hpp"

namespace attune::plan {
namespace {

using attention::LatentGroup;
using attention::LatentItem;
using attention::LatentMerge;

struct Lengths {
  std::vector<std::int32_t> qo;
  std::vector<std::int32_t> kv;

  [[nodiscard]] std::vector<std::pair<std::int32_t, std::int32_t>> requests() const {
    std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
    for (std::size_t i = 0; i < qo.size(); ++i) pairs.emplace_back(qo[i], kv[i]);
    return pairs;
  }
};

struct Batch : PagedBatch {
  explicit Batch(const Lengths& lengths)
      : PagedBatch(BatchForm::extend, 64, lengths.requests(), 1 << 12) {}
};

std::vector<Lengths> batches() {
  std::vector<Lengths> all{
      {{1}, {0}},
      {{1}, {1}},
      {{1}, {65536}},
      {{0, 1, 0}, {64, 0, 500}},
      {{1, 1, 1, 1}, {63, 64, 65, 100000}},
      {{4, 1, 3, 2}, {4, 64, 2, 1000}},  // a request with more queries than keys
      {{300, 1, 1}, {5000, 9, 17}},
      {std::vector<std::int32_t>(128, 1), std::vector<std::int32_t>(128, 4096)},
      {std::vector<std::int32_t>(128, 2), std::vector<std::int32_t>(128, 4096)},
  };
  Lengths skewed{std::vector<std::int32_t>(200, 1), std::vector<std::int32_t>(200, 3)};
  skewed.kv[77] = 131072;
  all.push_back(skewed);
  return all;
}

std::vector<LatentRules> rules() {
  std::vector<LatentRules> all;
  for (std::int32_t heads : {16, 20, 64, 96, 128})
    for (std::int32_t workers : {1, 2, 7, 132})
      for (bool causal : {false, true})
        for (bool meetings : {false, true})
          all.push_back(
              {.num_heads = heads, .causal = causal, .meetings = meetings, .workers = workers});
  return all;
}

/// Keys the tokens of a block see.
std::int32_t keys_of(const LatentRules& r, const LatentShape& shape, const LatentItem& item,
                     std::int32_t block) {
  if (!r.causal) return item.kv_len;
  std::int32_t most = 0;
  for (std::int32_t i = 0; i < shape.tokens_per_block; ++i) {
    const std::int32_t token = block / shape.head_blocks * shape.tokens_per_block + i;
    if (token < item.qo_len) most = std::max(most, item.kv_len - item.qo_len + token + 1);
  }
  return most;
}

TEST(LatentWork, CoversEveryBlocksKeysOnce) {
  for (const Lengths& lengths : batches()) {
    const Batch batch(lengths);
    for (const LatentRules& r : rules()) {
      const LatentShape shape = latent_shape(r, batch.view);
      EXPECT_LE(shape.heads_per_block * shape.tokens_per_block, 64);
      EXPECT_GE(shape.heads_per_block * shape.head_blocks, r.num_heads);
      LatentList list;
      list_latent_work(batch.view, r, shape, list);
      ASSERT_EQ(static_cast<std::int32_t>(list.groups.size()), latent_groups(r, shape));
      std::int32_t at = 0;
      for (const LatentGroup& group : list.groups) {
        ASSERT_EQ(group.begin, at);
        ASSERT_LE(group.begin, group.end);
        at = group.end;
        if (group.begin == group.end) continue;
        const LatentItem& first = list.items[static_cast<std::size_t>(group.begin)];
        EXPECT_EQ(std::memcmp(&group.first, &first, sizeof(first)), 0);
      }
      ASSERT_EQ(at, static_cast<std::int32_t>(list.items.size()));

      std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> covered;  // (token, block)
      for (const LatentItem& item : list.items) {
        const auto request = static_cast<std::size_t>(
            std::upper_bound(batch.qo_indptr.begin(), batch.qo_indptr.end(), item.q_token) -
            batch.qo_indptr.begin() - 1);
        EXPECT_EQ(item.kv_len, lengths.kv[request]);
        EXPECT_EQ(item.qo_len, lengths.qo[request]);
        EXPECT_EQ(item.entry_begin, batch.kv_indptr[request]);
        ASSERT_LE(item.tile_end, base::ceil_div(item.kv_len, 64));
        if (item.tile_begin < item.tile_end) {
          EXPECT_EQ(item.first_page,
                    batch.kv_indices[static_cast<std::size_t>(item.entry_begin + item.tile_begin)]);
        }
        for (std::int32_t lane = 0; lane < shape.lanes; ++lane) {
          const std::int32_t block = item.first_block + lane;
          if (block >= item.num_blocks) continue;
          std::int32_t& end = covered[{item.q_token, block}];
          EXPECT_EQ(end, item.tile_begin) << "parts are in order and do not overlap";
          end = item.tile_end;
        }
      }
      std::size_t blocks = 0;
      for (std::int32_t n : lengths.qo)
        blocks += static_cast<std::size_t>(base::ceil_div(n, shape.tokens_per_block)) *
                  static_cast<std::size_t>(shape.head_blocks);
      EXPECT_EQ(covered.size(), blocks) << "rows without keys are written too";
      for (const LatentItem& item : list.items)
        for (std::int32_t lane = 0; lane < shape.lanes; ++lane) {
          const std::int32_t block = item.first_block + lane;
          if (block < item.num_blocks) {
            EXPECT_GE((covered[{item.q_token, block}]) * 64, keys_of(r, shape, item, block));
          }
        }
    }
  }
}

TEST(LatentWork, PartsOfCutStripsMeetInPlacesOfTheirOwn) {
  for (const Lengths& lengths : batches()) {
    const Batch batch(lengths);
    for (const LatentRules& r : rules()) {
      const LatentShape shape = latent_shape(r, batch.view);
      LatentList list;
      list_latent_work(batch.view, r, shape, list);
      std::vector<int> uses(static_cast<std::size_t>(list.places), 0);
      for (const LatentMerge& merge : list.merges) {
        EXPECT_GT(merge.parts, r.meetings ? 2 : 1);
        EXPECT_LE(merge.parts, list.most_parts);
        std::int32_t found = 0;
        for (const LatentItem& item : list.items)
          if (item.q_token == merge.q_token && item.first_block == merge.first_block &&
              item.place >= 0) {
            EXPECT_EQ(item.place, merge.first_place + found);
            ++found;
            ++uses[static_cast<std::size_t>(item.place)];
          }
        EXPECT_EQ(found, merge.parts);
      }
      std::vector<std::vector<LatentItem>> meetings(static_cast<std::size_t>(list.meetings));
      for (const LatentItem& item : list.items)
        if (item.meeting >= 0) meetings[static_cast<std::size_t>(item.meeting)].push_back(item);
      for (const auto& parts : meetings) {
        ASSERT_EQ(parts.size(), 2u);
        EXPECT_EQ(parts[0].place, parts[1].place);
        EXPECT_EQ(parts[0].q_token, parts[1].q_token);
        EXPECT_EQ(parts[0].first_block, parts[1].first_block);
        EXPECT_EQ(parts[0].tile_end, parts[1].tile_begin);
        ++uses[static_cast<std::size_t>(parts[0].place)];
      }
      for (int n : uses) EXPECT_EQ(n, 1);
      const LatentLimits limits = latent_limits(r, batch.view.num_qo_tokens());
      EXPECT_LE(static_cast<std::int64_t>(list.items.size()), limits.items);
      EXPECT_LE(static_cast<std::int64_t>(list.merges.size()), limits.merges);
      EXPECT_LE(std::int64_t{list.places} * shape.lanes, limits.part_blocks);
      EXPECT_LE(std::int64_t{list.meetings} * shape.lanes, limits.counters);
    }
  }
}

TEST(LatentWork, GroupsAreEquallyLong) {
  const Batch batch({std::vector<std::int32_t>(128, 1), std::vector<std::int32_t>(128, 4096)});
  const LatentRules r{.num_heads = 128, .workers = 132};
  const LatentShape shape = latent_shape(r, batch.view);
  EXPECT_EQ(shape.lanes, 2) << "both blocks of heads read the same keys side by side";
  LatentList list;
  list_latent_work(batch.view, r, shape, list);
  std::int64_t total = 0;
  std::int64_t longest = 0;
  for (const LatentGroup& group : list.groups) {
    std::int64_t cost = 0;
    for (std::int32_t i = group.begin; i < group.end; ++i) {
      const LatentItem& item = list.items[static_cast<std::size_t>(i)];
      cost += item.tile_end - item.tile_begin + r.item_tiles;
    }
    total += cost;
    longest = std::max(longest, cost);
  }
  EXPECT_LE(longest * 66, total * 103 / 100);
}

TEST(LatentWork, ShapesFollowHeadsAndTokens) {
  const Batch one({{1, 1}, {100, 100}});
  const Batch four({{4, 4}, {100, 100}});
  const Batch mixed({{300, 1}, {300, 100}});
  const auto shape = [](std::int32_t heads, const Batch& b) {
    return latent_shape({.num_heads = heads, .workers = 132}, b.view);
  };
  EXPECT_EQ(shape(16, one).tokens_per_block, 1);
  EXPECT_EQ(shape(16, four).tokens_per_block, 4);
  EXPECT_EQ(shape(16, four).lanes, 1);
  EXPECT_EQ(shape(20, four).tokens_per_block, 3);
  EXPECT_EQ(shape(128, one).lanes, 2);
  EXPECT_EQ(shape(128, four).lanes, 4);
  EXPECT_EQ(shape(16, mixed).lanes, 1) << "the decode request has one block";
}

TEST(LatentWork, TakesTheLeastRowsThatHoldAnyRequest) {
  LatentRules rules{.num_heads = 16, .rows = 64, .least_rows = 16};
  const auto rows = [&](std::vector<std::int32_t> qo) {
    const std::vector<std::int32_t> kv(qo.size(), 100);
    return latent_shape(rules, Batch({std::move(qo), kv}).view);
  };
  EXPECT_EQ(rows({1, 0, 1}).rows, 16);
  EXPECT_EQ(rows({1, 2}).rows, 32);
  EXPECT_EQ(rows({1, 2}).tokens_per_block, 2);
  EXPECT_EQ(rows({3}).rows, 64);
  EXPECT_EQ(rows({9, 1}).rows, 64);
  EXPECT_EQ(rows({9, 1}).tokens_per_block, 4);
  rules.num_heads = 128;
  EXPECT_EQ(rows({1}).rows, 64);
  EXPECT_EQ(rows({1}).heads_per_block, 64);
  EXPECT_EQ(rows({1}).head_blocks, 2);
}

}  // namespace
}  // namespace attune::plan
