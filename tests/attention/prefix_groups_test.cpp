// Shared prefixes against page tables compared pair by pair.
#include "attention/prefix_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include <attune/validate.hpp>

namespace attune::attention {
namespace {

constexpr std::int32_t kPage = 4;

struct Tables {
  void add(const std::vector<std::int32_t>& pages, std::int32_t last_len, std::int64_t offset = 0) {
    indices.insert(indices.end(), pages.begin(), pages.end());
    kv_indptr.push_back(static_cast<std::int32_t>(indices.size()));
    last.push_back(pages.empty() ? 0 : last_len);
    qo_indptr.push_back(qo_indptr.back() + 1);
    offsets.push_back(offset);
  }
  [[nodiscard]] BatchView view() const {
    return {.form = BatchForm::decode,
            .page_size = kPage,
            .qo_indptr = qo_indptr,
            .kv_indptr = kv_indptr,
            .kv_indices = indices,
            .kv_last_page_len = last,
            .kv_offset = offsets};
  }
  [[nodiscard]] std::vector<PrefixGroup> groups() const {
    std::vector<PrefixGroup> found;
    find_prefix_groups(view(), found);
    return found;
  }
  std::vector<std::int32_t> qo_indptr{0}, kv_indptr{0}, indices, last;
  std::vector<std::int64_t> offsets;
};

void expect_group(const PrefixGroup& g, std::int32_t first, std::int32_t count,
                  std::int32_t pages) {
  EXPECT_EQ(g.first_request, first);
  EXPECT_EQ(g.num_requests, count);
  EXPECT_EQ(g.num_pages, pages);
}

TEST(PrefixGroups, SeveralLevels) {
  Tables t;
  t.add({1, 2, 3, 10}, 1);
  t.add({1, 2, 3, 11}, 1);
  t.add({1, 2, 12}, 3);
  t.add({7, 8}, 4);
  t.add({7, 8, 9}, 2);
  const auto groups = t.groups();
  ASSERT_EQ(groups.size(), 3u);
  expect_group(groups[0], 3, 2, 2);
  expect_group(groups[1], 0, 3, 2);
  expect_group(groups[2], 0, 2, 3);
}

TEST(PrefixGroups, OnlyFullPagesAtEqualPositions) {
  Tables partial;
  partial.add({1, 2}, 3);  // its second page is not full
  partial.add({1, 2}, 4);
  ASSERT_EQ(partial.groups().size(), 1u);
  expect_group(partial.groups()[0], 0, 2, 1);

  Tables moved;
  moved.add({1, 2}, 4, 0);
  moved.add({1, 2}, 4, 8);
  EXPECT_TRUE(moved.groups().empty());

  Tables alone;
  alone.add({1, 2}, 4);
  EXPECT_TRUE(alone.groups().empty());
  EXPECT_TRUE(Tables().groups().empty());
}

TEST(PrefixGroups, RandomTreesAreValidNestAndMissNothing) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Tables t;
    std::vector<std::vector<std::int32_t>> tables;
    const int n = static_cast<int>(random() % 9);
    for (int i = 0; i < n; ++i) {
      std::vector<std::int32_t> pages;
      const std::size_t count = random() % 6;
      // Three children a node; a page's id names its path.
      std::int32_t path = 0;
      for (std::size_t p = 0; p < count; ++p)
        pages.push_back(path = path * 4 + 1 + static_cast<std::int32_t>(random() % 3));
      tables.push_back(pages);
    }
    std::sort(tables.begin(), tables.end());
    for (const auto& pages : tables) t.add(pages, kPage);
    BatchView batch = t.view();
    const auto groups = t.groups();
    batch.prefix_groups = groups;
    const auto facts = validate_batch(
        batch, {.num_qo_heads = 1, .num_kv_heads = 1, .head_dim_qk = 8, .head_dim_vo = 8}, kPage);
    ASSERT_TRUE(facts.ok()) << facts.status().text();
    // Neighbours' common pages are the largest group that holds both.
    for (int i = 0; i + 1 < n; ++i) {
      const auto& a = tables[static_cast<std::size_t>(i)];
      const auto& b = tables[static_cast<std::size_t>(i) + 1];
      std::int32_t common = 0;
      while (common < static_cast<std::int32_t>(std::min(a.size(), b.size())) &&
             a[static_cast<std::size_t>(common)] == b[static_cast<std::size_t>(common)])
        ++common;
      std::int32_t named = 0;
      for (const PrefixGroup& g : groups)
        if (g.first_request <= i && i + 1 < g.first_request + g.num_requests)
          named = std::max(named, g.num_pages);
      EXPECT_EQ(named, common);
    }
    for (std::size_t x = 0; x < groups.size(); ++x)
      for (std::size_t y = x + 1; y < groups.size(); ++y) {
        const PrefixGroup& outer = groups[x];
        const PrefixGroup& inner = groups[y];
        const std::int32_t outer_end = outer.first_request + outer.num_requests;
        const std::int32_t inner_end = inner.first_request + inner.num_requests;
        const bool apart = inner_end <= outer.first_request || outer_end <= inner.first_request;
        const bool inside = outer.first_request <= inner.first_request && inner_end <= outer_end &&
                            outer.num_pages < inner.num_pages;
        EXPECT_TRUE(apart || inside);
      }
  }
}

}  // namespace
}  // namespace attune::attention
