#include "kernels/ops/route.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace attune::kernels::ops {
namespace {

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};
Routed routed(RouteParams p, const std::vector<float>& logits) {
  std::vector<float> workspace(2 * logits.size());
  Routed r{std::vector<std::int32_t>(static_cast<std::size_t>(p.topk)),
           std::vector<float>(static_cast<std::size_t>(p.topk))};
  p.logits = logits.data();
  p.num_experts = static_cast<int>(logits.size());
  p.workspace = workspace.data();
  p.ids = r.ids.data();
  p.weights = r.weights.data();
  route(p);
  return r;
}

TEST(Route, SoftmaxOverAllThenTheBest) {
  const Routed r = routed({.topk = 2}, {0.0f, std::log(3.0f), 0.0f, std::log(2.0f)});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{1, 3}));
  EXPECT_NEAR(r.weights[0], 3.0 / 7, 1e-6);
  EXPECT_NEAR(r.weights[1], 2.0 / 7, 1e-6);
}

TEST(Route, NormalisedAndScaled) {
  const Routed r = routed({.topk = 2, .normalize = true, .scale = 2.5f},
                          {0.0f, std::log(3.0f), 0.0f, std::log(2.0f)});
  EXPECT_NEAR(r.weights[0], 2.5 * 3 / 5, 1e-6);
  EXPECT_NEAR(r.weights[1], 2.5 * 2 / 5, 1e-6);
}

TEST(Route, SoftmaxOverTheChosenOnly) {
  const Routed r = routed({.topk = 2, .softmax_after_topk = true},
                          {-50.0f, std::log(3.0f), 0.0f, std::log(2.0f)});
  EXPECT_NEAR(r.weights[0], 0.6, 1e-6);
  EXPECT_NEAR(r.weights[1], 0.4, 1e-6);
}

TEST(Route, BiasChoosesButDoesNotWeigh) {
  const std::vector<float> bias{0, 0, 1.0f, 0};
  const Routed r = routed({.bias = bias.data(), .topk = 1, .score = ExpertScore::sigmoid},
                          {0.5f, 0.0f, -0.5f, 0.1f});
  EXPECT_EQ(r.ids[0], 2);
  EXPECT_NEAR(r.weights[0], 1 / (1 + std::exp(0.5)), 1e-6);
}

TEST(Route, GroupsBySumOfTwoBestOrByBest) {
  // Sigmoid: group 1 wins by its two best although expert 0 is the best of all.
  const std::vector<float> logits{3.0f, -9.0f, 1.5f, 1.4f};
  const Routed sum = routed({.topk = 1, .score = ExpertScore::sigmoid, .num_groups = 2}, logits);
  EXPECT_EQ(sum.ids[0], 2);
  const Routed best = routed({.topk = 1, .score = ExpertScore::softmax, .num_groups = 2}, logits);
  EXPECT_EQ(best.ids[0], 0);
}

TEST(Route, TiesGoToTheLowerId) {
  const Routed r = routed({.topk = 3}, {1.0f, 2.0f, 2.0f, 1.0f});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{1, 2, 0}));
}

TEST(Route, SqrtSoftplus) {
  const Routed r = routed({.topk = 2, .score = ExpertScore::sqrt_softplus}, {0.0f, 100.0f});
  EXPECT_NEAR(r.weights[0], 10.0, 1e-5);
  EXPECT_NEAR(r.weights[1], std::sqrt(std::log(2.0)), 1e-6);
}

}  // namespace
}  // namespace attune::kernels::ops
