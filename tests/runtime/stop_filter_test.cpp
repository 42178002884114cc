#include "runtime/stop_filter.hpp"

#include <gtest/gtest.h>

namespace attune::runtime {
namespace {

TEST(StopFilter, PassesTextThroughWithoutStops) {
  StopFilter filter({});
  EXPECT_EQ(filter.push("one "), "one ");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, NeverShowsPartOfAStopString) {
  StopFilter filter({"###END"});
  EXPECT_EQ(filter.push("text #"), "text ");
  EXPECT_EQ(filter.push("##"), "");
  EXPECT_EQ(filter.push("EN"), "");
  EXPECT_EQ(filter.push("D and more"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("later"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, ShowsWhatTurnedOutToBeNoStop) {
  StopFilter filter({"###END"});
  EXPECT_EQ(filter.push("a ##"), "a ");
  EXPECT_EQ(filter.push("# b"), "### b");
  EXPECT_EQ(filter.push("##"), "");
  EXPECT_EQ(filter.finish(), "##");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilter, TakesTheEarliestOfSeveralAndIgnoresEmptyOnes) {
  StopFilter filter({"", "zz", "b"});
  EXPECT_EQ(filter.push("abzz"), "a");
  EXPECT_TRUE(filter.stopped());
}

TEST(StopFilter, FindsAStopThatOverlapsItself) {
  StopFilter filter({"aab"});
  EXPECT_EQ(filter.push("aa"), "");
  EXPECT_EQ(filter.push("a"), "a");
  EXPECT_EQ(filter.push("b!"), "");
  EXPECT_TRUE(filter.stopped());
}

}  // namespace
}  // namespace attune::runtime
