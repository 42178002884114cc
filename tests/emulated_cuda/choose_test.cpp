// Tokens chosen on the card, row by row, against the host's sorted doubles: the same token unless
// the host's own answer hangs on a border that rounding may cross.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/ops/cuda/choose.hpp"

namespace attune::kernels::ops::cuda {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Case {
  std::vector<float> logits;  ///< [choices, width]
  std::vector<Choice> choices;
};

/// Rows lie apart, with NaN in between.
std::vector<std::int32_t> on_card(const Case& c) {
  const std::size_t tokens = c.choices.size();
  const std::size_t width = c.logits.size() / tokens;
  const std::size_t apart = width + 3;
  std::vector<float> rows(tokens * apart, kNan);
  for (std::size_t t = 0; t < tokens; ++t)
    std::copy_n(c.logits.begin() + static_cast<std::ptrdiff_t>(t * width), width,
                rows.begin() + static_cast<std::ptrdiff_t>(t * apart));
  std::vector<std::int32_t> ids(tokens, -7);
  std::vector<double> workspace(choose_bytes(static_cast<std::int64_t>(tokens)) / sizeof(double),
                                kNan);
  choose({.data = rows.data(),
          .dtype = DType::f32,
          .tokens = static_cast<std::int64_t>(tokens),
          .heads = 1,
          .width = static_cast<std::int64_t>(width),
          .token_stride = static_cast<std::int64_t>(apart),
          .head_stride = 0},
         c.choices.data(), workspace.data(), ids.data(), nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return ids;
}

/// The host would say it, or something before and something behind it, were cuts and draw a little
/// to either side.
bool is_at_border(std::span<const float> row, const Choice& choice, std::int32_t token) {
  constexpr double kShift = 2e-6;
  if (token < 0 || !(row[static_cast<std::size_t>(token)] > kNever)) return false;
  const auto no_later = [&](std::int32_t a, std::int32_t b) {
    const float x = row[static_cast<std::size_t>(a)];
    const float y = row[static_cast<std::size_t>(b)];
    return x != y ? x > y : a <= b;
  };
  Chooser host;
  for (double cut : {-kShift, 0.0, kShift})
    for (double least : {-kShift, 0.0, kShift}) {
      Choice near = choice;
      if (near.top_p < 1) near.top_p = std::clamp(near.top_p + cut, 1e-300, 1 - 1e-16);
      if (near.min_p > 0) near.min_p = std::clamp(near.min_p * (1 + least), 1e-300, 1.0);
      near.draw = std::max(choice.draw - kShift, 0.0);
      const std::int32_t first = host.choose(row, near);
      near.draw = std::min(choice.draw + kShift, 1 - 1e-16);
      if (no_later(first, token) && no_later(token, host.choose(row, near))) return true;
    }
  return false;
}

/// How many rows differ, all of them at borders.
int differing(const Case& c, const char* what) {
  const std::vector<std::int32_t> card = on_card(c);
  const std::size_t width = c.logits.size() / c.choices.size();
  Chooser host;
  int differing = 0;
  for (std::size_t t = 0; t < c.choices.size(); ++t) {
    const std::span row = std::span(c.logits).subspan(t * width, width);
    const Choice& by = c.choices[t];
    const std::int32_t wanted = host.choose(row, by);
    if (card[t] == wanted) continue;
    ++differing;
    EXPECT_TRUE(is_at_border(row, by, card[t]))
        << what << ", width " << width << ", row " << t << ": " << card[t] << " for " << wanted
        << "; temperature " << by.temperature << " k " << by.top_k << " p " << by.top_p << " min-p "
        << by.min_p << " draw " << by.draw;
  }
  return differing;
}

template <class T, std::size_t n>
T any_of(const T (&values)[n], std::mt19937& random) {
  return values[random() % n];
}

Choice any_choice(std::mt19937& random, std::int64_t width) {
  const double temperatures[] = {0, 1e-300, 1e-30, 0.01, 0.3, 0.7, 1, 1, 1.5, 100, 1e30, 1e300};
  const double shares[] = {1, 1, 0.95, 0.9, 0.5, 0.1, 1e-9, 1e-300, 0.999999};
  const double least[] = {0, 0, 0, 0.05, 0.3, 0.99};
  const std::int64_t counts[] = {0, 0, 1, 2, 5, 40, width - 1, width, width + 1, 2147483647};
  const double draws[] = {0, 0.5, 1 - 0x1p-53};
  std::uniform_real_distribution<double> uniform(0, 1);
  return {.temperature = any_of(temperatures, random),
          .top_p = any_of(shares, random),
          .min_p = any_of(least, random),
          .draw = random() % 8 == 0 ? any_of(draws, random) : uniform(random),
          .top_k = std::max<std::int64_t>(any_of(counts, random), 0)};
}

Case random_rows(int rows, std::int64_t width, std::mt19937& random) {
  Case c;
  for (int r = 0; r < rows; ++r) {
    c.choices.push_back(any_choice(random, width));
    const double spreads[] = {0.1, 1, 4, 20};
    std::normal_distribution<float> normal(0, static_cast<float>(any_of(spreads, random)));
    const unsigned kind = random() % 6;
    for (std::int64_t i = 0; i < width; ++i) {
      float x = normal(random);
      if (kind == 1) x = std::round(x);  // many equals, and both zeros
      if (kind == 2) x = -2.5f;
      if (kind == 3 && random() % 3 == 0) x = kNever;
      if (kind == 4 && random() % 5 == 0) x = kNan;
      if (kind == 5) x = -1000 + 0.001f * x;
      c.logits.push_back(x);
    }
  }
  return c;
}

TEST(Choose, TakesTheHostsTokens) {
  std::mt19937 random(5);
  int rows = 0;
  int differ = 0;
  const auto meet = [&](int count, std::int64_t width) {
    rows += count;
    differ += differing(random_rows(count, width, random), "random rows");
  };
  meet(200, 1);
  meet(400, 2);
  meet(700, 31);
  meet(300, 33);
  meet(200, 97);
  meet(40, 1500);
  meet(16, 5000);
  EXPECT_LT(differ, rows / 200) << "of " << rows;
}

TEST(Choose, WholeVocabularies) {
  std::mt19937 random(6);
  (void)differing(random_rows(4, 151936, random), "a vocabulary");
}

TEST(Choose, EverySpotOfADrawIsHit) {
  // Equal logits: a draw spreads evenly over the ids, cut to the lowest where they tie.
  Case c;
  for (int r = 0; r < 64; ++r) {
    c.choices.push_back({.temperature = 1, .draw = (r + 0.5) / 64, .top_k = r % 2 == 0 ? 0 : 16});
    c.logits.insert(c.logits.end(), 64, 0.25f);
  }
  const std::vector<std::int32_t> ids = on_card(c);
  for (int r = 0; r < 64; ++r) EXPECT_EQ(ids[static_cast<std::size_t>(r)], r % 2 == 0 ? r : r / 4);
}

TEST(Choose, WhatIsNoNumberIsNeverChosen) {
  constexpr float kEver = std::numeric_limits<float>::infinity();
  Case c;
  c.choices.assign(4, {.temperature = 1, .top_p = 0.5, .draw = 0.99});
  c.logits = {kNan, kNever, kNan, kNan, 1,      kNever, 2,      kEver,
              kNan, kNever, -3,   kNan, kNever, kNever, kNever, kNever};
  EXPECT_EQ(on_card(c), (std::vector<std::int32_t>{kNoToken, 3, 2, kNoToken}));
  EXPECT_EQ(differing(c, "no numbers"), 0);
}

TEST(Choose, AgainGivesTheSame) {
  std::mt19937 random(7);
  const Case c = random_rows(8, 9000, random);
  EXPECT_EQ(on_card(c), on_card(c));
}

}  // namespace
}  // namespace attune::kernels::ops::cuda
