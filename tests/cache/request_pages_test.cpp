#include "cache/request_pages.hpp"

#include <gtest/gtest.h>

#include "attention/mask.hpp"

namespace attune::cache {
namespace {

TEST(RequestPages, GrowsByWholePages) {
  PagePool pool(10, 4);
  RequestPages row;
  ASSERT_TRUE(row.extend(pool, 1).ok());
  ASSERT_TRUE(row.extend(pool, 4).ok());
  EXPECT_EQ(row.pages().size(), 1u);
  ASSERT_TRUE(row.extend(pool, 5).ok());
  EXPECT_EQ(row.pages().size(), 2u);
  EXPECT_EQ(row.slot(6, 4), static_cast<std::int64_t>(row.pages()[1]) * 4 + 2);
  row.clear(pool);
  EXPECT_EQ(pool.num_free(), 10);
}

TEST(RequestPages, RefusesToGrowBeyondThePool) {
  PagePool pool(2, 4);
  RequestPages row;
  ASSERT_TRUE(row.extend(pool, 8).ok());
  EXPECT_EQ(row.extend(pool, 9).code(), StatusCode::out_of_pages);
  EXPECT_EQ(row.pages().size(), 2u);
  row.clear(pool);
}

TEST(RequestPages, AWindowHoldsItsPagesAndNoMore) {
  constexpr attention::MaskRule kRule{.causal = true, .window_left = 9};
  for (const std::int32_t page_size : {1, 3, 16, 64}) {
    PagePool pool(12, page_size);
    RequestPages row;
    for (std::int64_t next = 0; next < 1000; ++next) {
      row.drop_before(pool, attention::first_needed_key(kRule, next));
      ASSERT_TRUE(row.extend(pool, next + 1).ok()) << "page size " << page_size;
      // Every visible key is there, and no page is kept for nothing.
      const std::int64_t first = attention::first_needed_key(kRule, next);
      ASSERT_LE(row.first_position(), first);
      ASSERT_GT(row.first_position() + page_size, first);
      ASSERT_EQ(row.first_position() % page_size, 0);
    }
    row.clear(pool);
    EXPECT_EQ(pool.num_held(), 0);
  }
}

TEST(RequestPages, MayBeDroppedBeyondItsEnd) {
  PagePool pool(4, 4);
  RequestPages row;
  ASSERT_TRUE(row.extend(pool, 3).ok());
  row.drop_before(pool, 17);
  EXPECT_EQ(row.first_position(), 16);
  EXPECT_EQ(pool.num_held(), 0);
  ASSERT_TRUE(row.extend(pool, 18).ok());
  EXPECT_EQ(row.pages().size(), 1u);
  row.clear(pool);
}

}  // namespace
}  // namespace attune::cache
