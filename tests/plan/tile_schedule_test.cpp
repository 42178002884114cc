#include "plan/tile_schedule.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace attune::plan {
namespace {

TEST(TileSchedule, CostliestFirstAndStable) {
  const std::vector<double> costs{1, 5, 3, 5, 0};
  EXPECT_EQ(costliest_first(costs), (std::vector<std::int32_t>{1, 3, 2, 0, 4}));
  EXPECT_TRUE(costliest_first({}).empty());
}

TEST(TileSchedule, BlocksFillRowsButLeaveNobodyIdle) {
  EXPECT_EQ(query_block_tokens(4, 192, 48, 1 << 20, 8), 48);  // plenty: full blocks
  EXPECT_EQ(query_block_tokens(4, 192, 48, 512, 8), 16);      // a short prompt: 64 rows each
  EXPECT_EQ(query_block_tokens(4, 192, 48, 64, 64), 12);      // never below min_rows
  EXPECT_EQ(query_block_tokens(128, 192, 48, 1 << 20, 8), 1);
  EXPECT_EQ(query_block_tokens(71, 192, 48, 71, 8), 1);
}

}  // namespace
}  // namespace attune::plan
