#include "kernels/top_k/top_k.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace attune::kernels::top_k {
namespace {

/// By sorting: largest first, of equals the later first; NaN is -infinity.
std::vector<std::int32_t> sorted_answer(const std::vector<float>& scores, std::int64_t k) {
  const auto value = [&](std::int32_t i) {
    const float x = scores[static_cast<std::size_t>(i)];
    return std::isnan(x) ? -std::numeric_limits<float>::infinity() : x;
  };
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return value(a) != value(b) ? value(a) > value(b) : a > b;
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
  std::sort(order.begin(), order.end());
  return order;
}

void check(const std::vector<float>& scores, std::int64_t k) {
  constexpr std::int32_t kUntouched = -77;
  std::vector<std::int32_t> places(static_cast<std::size_t>(k) + 1, kUntouched);
  const std::int64_t kept =
      keep_largest(scores.data(), static_cast<std::int64_t>(scores.size()), k, places.data());
  const std::vector<std::int32_t> want = sorted_answer(scores, k);
  ASSERT_EQ(kept, static_cast<std::int64_t>(want.size()));
  ASSERT_EQ(places.back(), kUntouched);
  places.resize(want.size());
  EXPECT_EQ(places, want) << scores.size() << " scores, " << k << " kept";
}

TEST(TopK, AgreesWithSorting) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const std::int64_t n : {0, 1, 2, 3, 63, 64, 65, 300, 5000})
    for (const std::int64_t k : {1, 2, 3, 64, 299, 300, 301, 2048}) {
      std::vector<float> scores(static_cast<std::size_t>(n));
      for (float& s : scores) s = normal(random);
      check(scores, k);
      for (float& s : scores) s *= 1e-40f;  // subnormal numbers keep their order
      check(scores, k);
    }
}

TEST(TopK, KeepsTheLaterOfEquals) {
  std::mt19937 random(8);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<float> scores(1 + random() % 90);
    for (float& s : scores) s = static_cast<float>(random() % 4) - 2.0f;
    check(scores, 1 + static_cast<std::int64_t>(random() % 40));
  }
  check(std::vector<float>(500, 0.0f), 7);
}

TEST(TopK, ZerosAreEqualAndNaNsAreLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scores{0.0f,     -0.0f,     nan,    -1.0f,
                                  infinity, -infinity, 0.0f,   std::copysign(nan, -1.0f),
                                  -0.0f,    1e-45f,    -1e-45f};
  for (std::int64_t k = 1; k <= 12; ++k) check(scores, k);
  check(std::vector<float>(9, nan), 4);
}

}  // namespace
}  // namespace attune::kernels::top_k
