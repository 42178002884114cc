#include "attention/mask.hpp"

#include <gtest/gtest.h>

#include "attention/lse.hpp"

namespace attune::attention {
namespace {

TEST(Mask, WindowBoundsAreInclusive) {
  const MaskRule rule{.causal = true, .window_left = 3};
  const KeyRange r = visible_range(rule, 10, 0, 100);
  EXPECT_EQ(r.begin, 7);
  EXPECT_EQ(r.end, 11);
}

TEST(Mask, RowsBeforeTheFirstKeySeeNothing) {
  const MaskRule rule{.causal = true};
  const KeyRange r = visible_range(rule, -2, 0, 32);
  EXPECT_EQ(r.begin, r.end);
}

TEST(Mask, ChunkRestartsAtItsBorder) {
  const MaskRule rule{.causal = true, .attention_chunk = 16};
  EXPECT_EQ(visible_range(rule, 15, 0, 64).begin, 0);
  EXPECT_EQ(visible_range(rule, 16, 0, 64).begin, 16);
  EXPECT_FALSE(visible(rule, 16, 15));
  EXPECT_EQ(visible_range(rule, -1, 0, 64).begin, visible_range(rule, -1, 0, 64).end);
}

TEST(Mask, SymmetricWindowOfAnEncoder) {
  const MaskRule rule{.causal = false, .window_left = 2, .window_right = 2};
  const KeyRange r = visible_range(rule, 5, 0, 7);
  EXPECT_EQ(r.begin, 3);
  EXPECT_EQ(r.end, 7);
}

TEST(Mask, FirstNeededKeyFollowsTheWindow) {
  EXPECT_EQ(first_needed_key({.causal = true, .window_left = 7}, 100), 93);
  EXPECT_EQ(first_needed_key({.causal = true}, 100), 0);
}

TEST(Lse, MergeMatchesTheHandWorkedVector) {
  // Section p of the algorithm notes: (1, ln 2) and (3, ln 6) give (2.5, ln 8).
  const auto w = merge_weights(std::log(2.0), std::log(6.0));
  EXPECT_NEAR(w.a * 1.0 + w.b * 3.0, 2.5, 1e-15);
  EXPECT_NEAR(w.lse, std::log(8.0), 1e-15);
  EXPECT_NEAR(2.5 * sink_factor(w.lse, std::log(2.0)), 2.0, 1e-15);
}

TEST(Lse, AnEmptyStateIsTheIdentity) {
  const auto w = merge_weights(kEmptyLse<double>, 1.5);
  EXPECT_EQ(w.a, 0.0);
  EXPECT_EQ(w.b, 1.0);
  EXPECT_EQ(w.lse, 1.5);
  const auto none = merge_weights(kEmptyLse<double>, kEmptyLse<double>);
  EXPECT_EQ(none.a, 0.0);
  EXPECT_EQ(none.b, 0.0);
  EXPECT_EQ(none.lse, kEmptyLse<double>);
}

}  // namespace
}  // namespace attune::attention
