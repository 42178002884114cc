#include "runtime/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace attune::runtime {
namespace {

const std::vector<float> kLogits{0.0f, 2.0f, 1.0f, -1.0f, 2.0f};

std::map<std::int32_t, int> histogram(const SamplingOptions& base, int draws) {
  Sampler sampler;
  std::map<std::int32_t, int> counts;
  SamplingOptions options = base;
  for (int i = 0; i < draws; ++i) {
    options.seed = static_cast<std::uint64_t>(i);
    const Result<std::int32_t> token = sampler.sample(kLogits, {}, options);
    EXPECT_TRUE(token.ok());
    ++counts[*token];
  }
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Sampler sampler;
  EXPECT_EQ(*sampler.sample(kLogits, {}, {}), 1);
}

TEST(Sampler, DrawsWithTheSoftmaxProbabilities) {
  constexpr int kDraws = 40000;
  const auto counts = histogram({.temperature = 0.7}, kDraws);
  double total = 0;
  for (float logit : kLogits) total += std::exp(logit / 0.7);
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    const double p = std::exp(kLogits[i] / 0.7) / total;
    const auto found = counts.find(static_cast<std::int32_t>(i));
    const double have = found == counts.end() ? 0 : found->second;
    EXPECT_NEAR(have / kDraws, p, 4 * std::sqrt(p * (1 - p) / kDraws) + 1e-4) << "token " << i;
  }
}

TEST(Sampler, TopKKeepsTheBest) {
  const auto counts = histogram({.temperature = 5.0, .top_k = 3}, 2000);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(2) && counts.contains(4));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // Probabilities at temperature 1: 0.37, 0.37, 0.14, 0.05, … so 0.7 needs the two best.
  const auto counts = histogram({.temperature = 1.0, .top_p = 0.7}, 2000);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(4));
  EXPECT_EQ(histogram({.temperature = 1.0, .top_p = 1e-9}, 100).size(), 1u);
}

/// The rule in its plainest form: all tokens in order.
std::int32_t sorted_choice(const std::vector<float>& logits, const model::Choice& choice) {
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::ranges::stable_sort(ids, [&](auto a, auto b) { return logits[a] > logits[b]; });
  if (choice.top_k > 0 && static_cast<std::size_t>(choice.top_k) < ids.size())
    ids.resize(static_cast<std::size_t>(choice.top_k));
  const auto weight = [&](std::size_t i) {
    return std::exp((logits[ids[i]] - static_cast<double>(logits[ids[0]])) / choice.temperature);
  };
  const auto sum = [&](std::size_t count) {
    double total = 0;
    for (std::size_t i = 0; i < count; ++i) total += weight(i);
    return total;
  };
  std::size_t kept = 0;
  const double enough = choice.top_p < 1 ? choice.top_p * sum(ids.size()) : INFINITY;
  for (double reached = 0; kept < ids.size() && reached < enough; ++kept) reached += weight(kept);
  while (kept > 1 && weight(kept - 1) < choice.min_p) --kept;
  double left = choice.draw * sum(kept);
  for (std::size_t i = 0; i + 1 < kept; ++i)
    if ((left -= weight(i)) < 0) return static_cast<std::int32_t>(ids[i]);
  return static_cast<std::int32_t>(ids[kept - 1]);
}

TEST(Sampler, PartialOrderChoosesWhatTheWholeOrderDoes) {
  // Flat and peaked rows, longer than what is put into order at once.
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  model::Chooser chooser;
  for (int row = 0; row < 300; ++row) {
    std::normal_distribution<float> normal(0, row % 3 == 0 ? 0.1f : 3.0f);
    std::vector<float> logits(row % 2 == 0 ? 5000 : 300);
    for (float& x : logits) x = row % 5 == 0 ? std::round(normal(random)) : normal(random);
    const model::Choice choice{.temperature = row % 7 == 0 ? 3.0 : 0.8,
                               .top_p = row % 4 == 0 ? 0.97 : 1.0,
                               .min_p = row % 6 == 0 ? 0.01 : 0.0,
                               .draw = uniform(random),
                               .top_k = row % 8 == 0 ? 1000 : 0};
    EXPECT_EQ(chooser.choose(logits, choice), sorted_choice(logits, choice)) << "row " << row;
  }
}

TEST(Sampler, AnInfiniteLogitIsTheBest) {
  Sampler sampler;
  EXPECT_EQ(
      *sampler.sample(std::vector<float>{1, INFINITY, 2}, {}, {.temperature = 1, .top_p = 0.5}), 1);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  // e^-1 = 0.368 of the best stays, e^-2 = 0.135 goes.
  const auto counts = histogram({.temperature = 1.0, .min_p = 0.3}, 3000);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_FALSE(counts.contains(0));
}

TEST(Sampler, RepetitionPenaltyWorksOnBothSigns) {
  Sampler sampler;
  const std::vector<float> logits{1.0f, -0.1f};
  const std::vector<std::int32_t> history{0, 0};
  // 1 / 3 stays above -0.1; a token already seen with a negative logit falls further.
  EXPECT_EQ(*sampler.sample(logits, history, {.repetition_penalty = 3.0}), 0);
  const std::vector<float> negative{-0.2f, -0.3f};
  EXPECT_EQ(*sampler.sample(negative, history, {.repetition_penalty = 2.0}), 1);
}

TEST(Sampler, TheSameSeedAndPositionDrawTheSame) {
  Sampler a;
  Sampler b;
  const SamplingOptions options{.temperature = 1.0, .seed = 42};
  std::vector<std::int32_t> history;
  for (int i = 0; i < 50; ++i) {
    const std::int32_t token = *a.sample(kLogits, history, options);
    EXPECT_EQ(*b.sample(kLogits, history, options), token);
    history.push_back(token);
  }
}

TEST(Sampler, SaysSoWhenNoLogitIsANumber) {
  Sampler sampler;
  const std::vector<float> logits(4, NAN);
  EXPECT_EQ(sampler.sample(logits, {}, {}).status().code(), StatusCode::internal);
}

TEST(Sampler, NamesTheOptionOutOfRange) {
  EXPECT_TRUE(validate({}).ok());
  EXPECT_NE(validate({.temperature = -1}).text().find("temperature"), std::string::npos);
  EXPECT_NE(validate({.temperature = NAN}).text().find("temperature"), std::string::npos);
  EXPECT_NE(validate({.top_k = -1}).text().find("top-k"), std::string::npos);
  EXPECT_NE(validate({.top_p = 0}).text().find("top-p"), std::string::npos);
  EXPECT_NE(validate({.min_p = 2}).text().find("min-p"), std::string::npos);
  EXPECT_NE(validate({.repetition_penalty = 0}).text().find("repetition"), std::string::npos);
}

}  // namespace
}  // namespace attune::runtime
