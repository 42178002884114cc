#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include <attune/cache.hpp>

namespace attune {
namespace {

TEST(PagePool, HandsOutDistinctPagesAndTakesThemBack) {
  PagePool pool(5, 16);
  std::vector<PageId> row;
  ASSERT_TRUE(pool.allocate(5, row).ok());
  EXPECT_EQ(std::set<PageId>(row.begin(), row.end()).size(), 5u);
  EXPECT_EQ(pool.num_free(), 0);
  ASSERT_TRUE(pool.release(row).ok());
  EXPECT_EQ(pool.num_free(), 5);
}

TEST(PagePool, AllocatesAllOrNothing) {
  PagePool pool(3, 16);
  std::vector<PageId> row;
  const Status status = pool.allocate(4, row);
  EXPECT_EQ(status.code(), StatusCode::out_of_pages);
  EXPECT_EQ(status.text(), "wanted 4 pages of 16 tokens, 3 of 3 are free");
  EXPECT_TRUE(row.empty());
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_TRUE(pool.allocate(0, row).ok());
}

TEST(PagePool, KeepsAPageUntilItsLastHolderLetsGo) {
  PagePool pool(2, 4);
  std::vector<PageId> row;
  ASSERT_TRUE(pool.allocate(1, row).ok());
  ASSERT_TRUE(pool.retain(row).ok());
  EXPECT_EQ(pool.holders(row[0]), 2);
  ASSERT_TRUE(pool.release(row).ok());
  EXPECT_EQ(pool.num_free(), 1);
  ASSERT_TRUE(pool.release(row).ok());
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(PagePool, DetectsADoubleFreeAndChangesNothing) {
  PagePool pool(4, 4);
  std::vector<PageId> row;
  ASSERT_TRUE(pool.allocate(3, row).ok());
  const std::vector<PageId> twice{row[0], row[1], row[0]};
  EXPECT_EQ(pool.release(twice).code(), StatusCode::invalid_argument);
  EXPECT_EQ(pool.num_held(), 3);
  for (PageId page : row) EXPECT_EQ(pool.holders(page), 1);
  ASSERT_TRUE(pool.release(row).ok());
  EXPECT_FALSE(pool.release(row).ok());
  EXPECT_FALSE(pool.retain(row).ok());
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(PagePool, RefusesPagesItDoesNotKnow) {
  PagePool pool(2, 1);
  EXPECT_FALSE(pool.release(std::vector<PageId>{PageId{-1}}).ok());
  EXPECT_FALSE(pool.release(std::vector<PageId>{PageId{2}}).ok());
  EXPECT_FALSE(pool.retain(std::vector<PageId>{PageId{0}}).ok());
}

TEST(PagePool, ReusesTheLastFreedPageFirst) {
  PagePool pool(8, 1);
  std::vector<PageId> row;
  ASSERT_TRUE(pool.allocate(4, row).ok());
  EXPECT_EQ(row.front(), PageId{0});
  const PageId freed = row[2];
  ASSERT_TRUE(pool.release(std::vector<PageId>{freed}).ok());
  std::vector<PageId> again;
  ASSERT_TRUE(pool.allocate(1, again).ok());
  EXPECT_EQ(again[0], freed);
}

TEST(PagePool, BalancesOverARandomHistory) {
  PagePool pool(64, 16);
  std::mt19937 random(7);
  std::vector<std::vector<PageId>> held;
  std::int32_t expected = 0;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0 || held.empty()) {
      std::vector<PageId> row;
      const auto wanted = static_cast<std::int64_t>(random() % 9);
      const bool fits = wanted <= pool.num_free();
      EXPECT_EQ(pool.allocate(wanted, row).ok(), fits);
      expected += static_cast<std::int32_t>(row.size());
      held.push_back(row);
    } else {
      const std::size_t victim = random() % held.size();
      ASSERT_TRUE(pool.release(held[victim]).ok());
      expected -= static_cast<std::int32_t>(held[victim].size());
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    ASSERT_EQ(pool.num_held(), expected);
  }
}

}  // namespace
}  // namespace attune
