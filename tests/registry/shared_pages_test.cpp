#include "registry/shared_pages.hpp"

#include <gtest/gtest.h>

namespace attune::registry {
namespace {

const Capability kAny{.preferred_page_size = 16};
const Capability kLarge{.page_sizes = {64, 32}};
const Capability kHuge{.page_sizes = {128}};

PageSizes sizes(const Capability& row) { return PageSizes(std::vector<const Capability*>{&row}); }

TEST(SharedPages, AnyYieldsToAList) {
  const PageSizes both = sizes(kAny).intersect(sizes(kLarge));
  EXPECT_EQ(both.preferred(), 64);
  EXPECT_TRUE(both.contains(32));
  EXPECT_FALSE(both.contains(16));
}

TEST(SharedPages, TheFirstWishCounts) {
  Capability one{.preferred_page_size = 1};
  EXPECT_EQ(sizes(kAny).intersect(sizes(one)).preferred(), 16);
  EXPECT_EQ(PageSizes().intersect(sizes(one)).preferred(), 1);
}

TEST(SharedPages, DisjointListsAreEmpty) {
  EXPECT_TRUE(sizes(kLarge).intersect(sizes(kHuge)).empty());
}

TEST(SharedPages, RowsOfOneBackendAreTakenTogether) {
  const PageSizes both(std::vector<const Capability*>{&kLarge, &kHuge});
  EXPECT_EQ(both.preferred(), 64);
  EXPECT_TRUE(both.contains(128));
}

TEST(SharedPages, AFixedSizeIsTheOnlyOne) {
  EXPECT_EQ(PageSizes(32).intersect(sizes(kLarge)).preferred(), 32);
  EXPECT_TRUE(PageSizes(48).intersect(sizes(kLarge)).empty());
  EXPECT_TRUE(PageSizes(300).intersect(sizes(kAny)).empty());
}

TEST(SharedPages, Layouts) {
  const Capability nhd{.kv_layouts = {KvLayout::nhd}};
  const Capability both{.kv_layouts = {KvLayout::hnd, KvLayout::nhd}};
  const Capability hnd{.kv_layouts = {KvLayout::hnd}};
  EXPECT_EQ(shared_layout(both, nhd), KvLayout::nhd);
  EXPECT_EQ(shared_layout(both, both), KvLayout::hnd);
  EXPECT_FALSE(shared_layout(nhd, hnd).has_value());
}

}  // namespace
}  // namespace attune::registry
