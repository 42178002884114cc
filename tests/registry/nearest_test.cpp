#include "registry/nearest.hpp"

#include <gtest/gtest.h>

namespace attune::registry {
namespace {

TEST(Nearest, Distances) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("fa3", "fa4"), 1);
  EXPECT_EQ(edit_distance("tirton", "triton"), 1);
  EXPECT_EQ(edit_distance("flashinfr", "flashinfer"), 1);
}

TEST(Nearest, NearestFirstAndNothingFar) {
  constexpr std::string_view kNames[] = {"flashmla", "flashinfer", "triton", "fa3"};
  EXPECT_EQ(nearest("flashinfr", kNames), (std::vector<std::string_view>{"flashinfer"}));
  EXPECT_EQ(nearest("flash", kNames), (std::vector<std::string_view>{"flashmla", "flashinfer"}));
  EXPECT_TRUE(nearest("xformers", kNames).empty());
}

}  // namespace
}  // namespace attune::registry
