#include "plan/workspace_image.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plan/workspace.hpp"

namespace attune::plan {
namespace {

struct Parts {
  float* results;
  std::int32_t* list;
  std::int32_t* counters;
  std::int64_t* total;
};

Parts lay_out(WorkspaceCutter& cut) {
  Parts parts;
  parts.results = cut.take<float>(5);
  parts.list = cut.take<std::int32_t>(20);
  parts.counters = cut.take<std::int32_t>(3);
  parts.total = cut.take<std::int64_t>(1);
  return parts;
}

class Image : public testing::Test {
 protected:
  Image() {
    WorkspaceCutter cut(memory_.data());
    parts_ = lay_out(cut);
  }
  /// As a device would: one copy.
  void copy() { std::memcpy(image_.place(), image_.data(), image_.bytes()); }

  alignas(WorkspaceCutter::kAlignment) std::array<std::byte, 512> memory_{};
  Parts parts_{};
  WorkspaceImage image_;
};

TEST_F(Image, ListsComeToTheirPlacesAndNothingBeforeThemChanges) {
  memory_.fill(std::byte{0x55});
  const std::vector<std::int32_t> list{7, 8, 9};
  image_.cover(parts_.list, parts_.total + 1);
  image_.put(parts_.list, list);
  image_.put_one(parts_.total, std::int64_t{24});
  copy();
  EXPECT_EQ(static_cast<void*>(parts_.list), image_.place());
  EXPECT_EQ(parts_.list[0], 7);
  EXPECT_EQ(parts_.list[2], 9);
  EXPECT_EQ(parts_.counters[2], 0);
  EXPECT_EQ(*parts_.total, 24);
  for (const std::byte* b = memory_.data(); b < image_.place(); ++b)
    EXPECT_EQ(*b, std::byte{0x55}) << b - memory_.data();
  EXPECT_EQ(*reinterpret_cast<std::byte*>(parts_.total + 1), std::byte{0x55});
}

TEST_F(Image, ClearingMakesWhatIsNotPutZeroAgain) {
  const std::vector<std::int32_t> list{7, 8, 9};
  image_.cover(parts_.list, parts_.total + 1);
  image_.put(parts_.list, list);
  image_.put_one(parts_.total, std::int64_t{24});
  image_.clear();
  image_.cover(parts_.list, parts_.total + 1);
  image_.put(parts_.list, std::vector<std::int32_t>{1});
  copy();
  EXPECT_EQ(parts_.list[0], 1);
  EXPECT_EQ(parts_.list[1], 0);
  EXPECT_EQ(*parts_.total, 0);
}

TEST_F(Image, AnEmptyListIsNoBytes) {
  image_.cover(parts_.list, parts_.list);
  image_.put(parts_.list, std::vector<std::int32_t>{});
  EXPECT_EQ(image_.bytes(), 0u);
}

}  // namespace
}  // namespace attune::plan
