#include "plan/workspace.hpp"

#include <gtest/gtest.h>

#include <array>

namespace attune::plan {
namespace {

struct Parts {
  float* a;
  char* b;
  double* c;
};

Parts lay_out(WorkspaceCutter& cut) {
  return {cut.take<float>(3), cut.take<char>(65), cut.take<double>(2)};
}

TEST(WorkspaceCutter, CountsWhatItHandsOut) {
  WorkspaceCutter count;
  const Parts none = lay_out(count);
  EXPECT_EQ(none.a, nullptr);
  EXPECT_EQ(none.c, nullptr);
  EXPECT_EQ(count.bytes(), 256u);

  alignas(256) std::array<std::byte, 256> memory{};
  WorkspaceCutter cut(memory.data());
  const Parts parts = lay_out(cut);
  EXPECT_EQ(cut.bytes(), count.bytes());
  EXPECT_EQ(static_cast<void*>(parts.a), memory.data());
  EXPECT_EQ(static_cast<void*>(parts.b), memory.data() + 64);
  EXPECT_EQ(static_cast<void*>(parts.c), memory.data() + 192);
}

TEST(WorkspaceCutter, NothingTakenIsNothingNeeded) {
  WorkspaceCutter count;
  count.take<float>(0);
  EXPECT_EQ(count.bytes(), 0u);
}

}  // namespace
}  // namespace attune::plan
