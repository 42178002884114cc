#include "kernels/ops/choose.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace attune::kernels::ops {
namespace {

std::int32_t best_of(std::span<const float> logits) {
  std::int32_t best = kNoToken;
  float best_logit = -INFINITY;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > best_logit)) continue;
    best_logit = logits[i];
    best = static_cast<std::int32_t>(i);
  }
  return best;
}

}  // namespace

std::int32_t Chooser::choose(std::span<const float> logits, const Choice& choice) {
  const std::int32_t best = best_of(logits);
  if (best == kNoToken || choice.temperature == 0.0) return best;
  const double top = logits[static_cast<std::size_t>(best)];
  if (std::isinf(top)) return best;  // its weight beside the others' has no number

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -INFINITY) candidates_.push_back({static_cast<std::int32_t>(i), logits[i]});
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  std::size_t kept = candidates_.size();
  if (choice.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(choice.top_k));
  // Sorting all of a large vocabulary is only needed where the order decides.
  const auto middle = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
  std::partial_sort(candidates_.begin(), middle, candidates_.end(), better);

  double total = 0;
  weights_.clear();
  for (std::size_t i = 0; i < kept; ++i) {
    weights_.push_back(std::exp((candidates_[i].logit - top) / choice.temperature));
    total += weights_.back();
  }
  if (choice.top_p < 1.0) {
    double reached = 0;
    std::size_t needed = 0;
    while (needed < kept && reached < choice.top_p * total) reached += weights_[needed++];
    kept = std::max<std::size_t>(needed, 1);
  }
  if (choice.min_p > 0)  // weights_ are relative to the best token's already
    while (kept > 1 && weights_[kept - 1] < choice.min_p) --kept;

  total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weights_[i];
  double left = choice.draw * total;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].token;
  }
  return candidates_[kept - 1].token;
}

}  // namespace attune::kernels::ops
