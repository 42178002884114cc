#include "kernels/ops/choose.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

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
  const auto weight_of = [&](const Candidate& c) {
    return std::exp((c.logit - top) / choice.temperature);
  };
  std::size_t kept = candidates_.size();
  if (choice.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(choice.top_k));

  // Cuts and draws mostly end among the first of a vocabulary: so far, and no further, it is put
  // into order. weights_ are those of the tokens in order.
  weights_.clear();
  const auto order = [&](std::size_t wanted) {
    constexpr std::size_t kFirst = 256;  // where a heap of them is faster than parting them off
    if (wanted <= weights_.size()) return;
    const auto better = [](const Candidate& a, const Candidate& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
    };
    const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(weights_.size());
    const std::size_t upto = std::min(candidates_.size(), wanted <= kFirst ? kFirst : 8 * wanted);
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(upto);
    if (upto <= kFirst) {
      std::partial_sort(begin, end, candidates_.end(), better);
    } else {
      if (end != candidates_.end()) std::nth_element(begin, end, candidates_.end(), better);
      std::sort(begin, end, better);
    }
    while (weights_.size() < upto) weights_.push_back(weight_of(candidates_[weights_.size()]));
  };
  const auto weight_at = [&](std::size_t i) {
    order(i + 1);
    return weights_[i];
  };
  const auto sum_of_first = [&](std::size_t count) {
    order(count);
    return std::accumulate(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(count),
                           0.0);
  };
  /// Of all those of at least `least`, in no order.
  const auto sum_of_all = [&](double least, std::size_t& count) {
    double sum = 0;
    count = 0;
    for (const Candidate& c : candidates_) {
      const double weight = weight_of(c);
      if (weight < least) continue;
      sum += weight;
      ++count;
    }
    return sum;
  };

  std::size_t count = 0;
  const bool whole = kept == candidates_.size();
  double total = whole ? sum_of_all(0, count) : sum_of_first(kept);
  if (choice.top_p < 1.0) {
    double reached = 0;
    std::size_t needed = 0;
    while (needed < kept && reached < choice.top_p * total) reached += weight_at(needed++);
    kept = std::max<std::size_t>(needed, 1);
    total = sum_of_first(kept);
  }
  if (choice.min_p > 0) {  // weights are relative to the best token's already
    const double sum = sum_of_all(choice.min_p, count);
    if (count < kept) {
      kept = std::max<std::size_t>(count, 1);
      total = count > 0 ? sum : weight_at(0);
    }
  }

  double left = choice.draw * total;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weight_at(i);
    if (left < 0) return candidates_[i].token;
  }
  order(kept);
  return candidates_[kept - 1].token;
}

}  // namespace attune::kernels::ops
