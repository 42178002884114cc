#include "kernels/ops/route.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attune::kernels::ops {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

/// The index of the largest of n numbers, the first of equals.
int argmax(const float* x, int n) { return static_cast<int>(std::max_element(x, x + n) - x); }

void score(const RouteParams& p, float* scores) {
  if (p.softmax_after_topk) {
    std::copy_n(p.logits, p.num_experts, scores);
    return;
  }
  if (p.score == ExpertScore::softmax) {
    const float largest = *std::max_element(p.logits, p.logits + p.num_experts);
    double sum = 0;
    for (int e = 0; e < p.num_experts; ++e) sum += scores[e] = std::exp(p.logits[e] - largest);
    for (int e = 0; e < p.num_experts; ++e) scores[e] = static_cast<float>(scores[e] / sum);
    return;
  }
  for (int e = 0; e < p.num_experts; ++e) {
    const float x = p.logits[e];
    if (p.score == ExpertScore::sigmoid) {
      scores[e] = 1.0f / (1.0f + std::exp(-x));
    } else {
      // softplus, linear where exp would overflow
      scores[e] = std::sqrt(x > 20.0f ? x : std::log1p(std::exp(x)));
    }
  }
}

float group_score(const RouteParams& p, const float* group, int size) {
  float best = kOut;
  float second = kOut;
  for (int i = 0; i < size; ++i) {
    if (group[i] > best) {
      second = best;
      best = group[i];
    } else {
      second = std::max(second, group[i]);
    }
  }
  return p.score == ExpertScore::softmax || size == 1 ? best : best + second;
}

/// Marks the experts of all but the best groups as not eligible.
void limit_groups(const RouteParams& p, float* choice) {
  const int size = p.num_experts / p.num_groups;
  // A group is kept if fewer than topk_groups others beat it, ties to the lower number.
  const auto beats = [&](int a, int b, float score_a, float score_b) {
    return score_a > score_b || (score_a == score_b && a < b);
  };
  // Scores are compared before any group is marked, so the marks are kept in a second pass.
  constexpr int kMaxGroups = 64;
  float scores[kMaxGroups];
  const int groups = std::min(p.num_groups, kMaxGroups);
  for (int g = 0; g < groups; ++g) scores[g] = group_score(p, choice + g * size, size);
  for (int g = 0; g < groups; ++g) {
    int better = 0;
    for (int h = 0; h < groups; ++h) better += h != g && beats(h, g, scores[h], scores[g]);
    if (better >= p.topk_groups) std::fill_n(choice + g * size, size, kOut);
  }
}

}  // namespace

void route(const RouteParams& p) {
  float* scores = p.workspace;
  float* choice = p.workspace + p.num_experts;
  score(p, scores);
  for (int e = 0; e < p.num_experts; ++e)
    choice[e] = scores[e] + (p.bias == nullptr ? 0.0f : p.bias[e]);
  if (p.num_groups > 1 && p.topk_groups < p.num_groups) limit_groups(p, choice);

  double sum = 0;
  for (int j = 0; j < p.topk; ++j) {
    const int e = argmax(choice, p.num_experts);
    choice[e] = kOut;
    p.ids[j] = e;
    p.weights[j] = scores[e];
    sum += scores[e];
  }
  if (p.softmax_after_topk) {
    const float largest = *std::max_element(p.weights, p.weights + p.topk);
    sum = 0;
    for (int j = 0; j < p.topk; ++j) sum += p.weights[j] = std::exp(p.weights[j] - largest);
  }
  const bool divide = p.normalize || p.softmax_after_topk;
  const double divisor = divide ? sum + 1e-20 : 1.0;
  for (int j = 0; j < p.topk; ++j)
    p.weights[j] = static_cast<float>(p.weights[j] / divisor) * p.scale;
}

}  // namespace attune::kernels::ops
