#include "attention/page_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attune::attention {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PageTable, TheExampleOfBatchHpp) {
  const std::vector<std::int32_t> a{7, 2}, b{9, 4, 1};
  const PageTableRow rows[] = {{.pages = a, .kv_len = 5, .qo_len = 3},
                               {.pages = b, .kv_len = 9, .qo_len = 1}};
  PageTable table;
  ASSERT_TRUE(table.assign(rows, 4).ok());
  const BatchView batch = table.view(BatchForm::mixed);
  EXPECT_THAT(batch.qo_indptr, ElementsAre(0, 3, 4));
  EXPECT_THAT(batch.kv_indptr, ElementsAre(0, 2, 5));
  EXPECT_THAT(batch.kv_indices, ElementsAre(7, 2, 9, 4, 1));
  EXPECT_THAT(batch.kv_last_page_len, ElementsAre(1, 1));
  EXPECT_THAT(batch.kv_offset, IsEmpty());
  EXPECT_THAT(table.slot_mapping(), ElementsAre(30, 31, 8, 4));
}

TEST(PageTable, SparePagesNeverReachTheBatch) {
  // A full last page with a spare one behind it must not lengthen the request.
  const std::vector<std::int32_t> pages{3, 5, 6};
  const PageTableRow rows[] = {{.pages = pages, .kv_len = 16, .qo_len = 1}};
  PageTable table;
  ASSERT_TRUE(table.assign(rows, 16).ok());
  EXPECT_THAT(table.view(BatchForm::decode).kv_indices, ElementsAre(3));
  EXPECT_EQ(table.view(BatchForm::decode).kv_len(0), 16);
}

TEST(PageTable, EmptyRequestsAndQueriesWithoutKeys) {
  const std::vector<std::int32_t> one{4};
  const PageTableRow rows[] = {{}, {.pages = one, .kv_len = 1, .qo_len = 3, .kv_offset = 64}};
  PageTable table;
  ASSERT_TRUE(table.assign(rows, 16).ok());
  const BatchView batch = table.view(BatchForm::extend);
  EXPECT_THAT(batch.kv_last_page_len, ElementsAre(0, 1));
  EXPECT_THAT(batch.kv_offset, ElementsAre(0, 64));
  EXPECT_THAT(table.slot_mapping(), ElementsAre(-1, -1, 64));
}

TEST(PageTable, RefusesKeysWithoutPages) {
  const std::vector<std::int32_t> one{4};
  const PageTableRow rows[] = {{.pages = one, .kv_len = 17, .qo_len = 1}};
  PageTable table;
  EXPECT_FALSE(table.assign(rows, 16).ok());
  EXPECT_FALSE(table.assign(rows, 0).ok());
}

}  // namespace
}  // namespace attune::attention
