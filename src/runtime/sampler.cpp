#include "runtime/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace attune::runtime {
namespace {

constexpr std::int32_t kNone = -1;

/// The best token, the lowest id among equals; kNone if every logit is NaN or -inf.
std::int32_t best_of(std::span<const float> logits) {
  std::int32_t best = kNone;
  float best_logit = -INFINITY;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > best_logit)) continue;
    best_logit = logits[i];
    best = static_cast<std::int32_t>(i);
  }
  return best;
}

/// arXiv:1909.05858, as the field applies it: away from the token whatever the logit's sign.
void penalise(std::span<float> logits, std::span<const std::int32_t> history, double penalty) {
  std::vector<bool> seen(logits.size(), false);
  for (std::int32_t token : history) {
    const auto i = static_cast<std::size_t>(token);
    if (i >= logits.size() || seen[i]) continue;
    seen[i] = true;
    const double logit = logits[i];
    logits[i] = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

Status out_of_range(const char* what, double have, const char* wanted) {
  return invalid_argument(std::string(what) + " is " + std::to_string(have) + ", wanted " + wanted);
}

}  // namespace

Status validate(const SamplingOptions& o) {
  if (!(o.temperature >= 0) || std::isinf(o.temperature))
    return out_of_range("temperature", o.temperature, "a finite number of 0 or more");
  if (o.top_k < 0) return out_of_range("top-k", o.top_k, "0 (off) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) return out_of_range("top-p", o.top_p, "0 < top-p <= 1");
  if (!(o.min_p >= 0 && o.min_p <= 1)) return out_of_range("min-p", o.min_p, "0 <= min-p <= 1");
  if (!(o.repetition_penalty > 0) || std::isinf(o.repetition_penalty))
    return out_of_range("repetition penalty", o.repetition_penalty, "a finite number above 0");
  return {};
}

double uniform_draw(std::uint64_t seed, std::uint64_t position) {
  return static_cast<double>(mix(mix(seed) ^ position) >> 11) * 0x1p-53;
}

Status Sampler::no_number() {
  return internal_error("no logit is a number: the forward pass went wrong");
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits,
                                     std::span<const std::int32_t> history,
                                     const SamplingOptions& options) {
  std::span<const float> scores = logits;
  if (options.repetition_penalty != 1.0) {
    logits_.assign(logits.begin(), logits.end());
    penalise(logits_, history, options.repetition_penalty);
    scores = logits_;
  }
  const std::int32_t best = best_of(scores);
  if (best == kNone) return no_number();
  if (options.temperature == 0.0) return best;

  candidates_.clear();
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (scores[i] > -INFINITY) candidates_.push_back({static_cast<std::int32_t>(i), scores[i]});
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  std::size_t kept = candidates_.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  // Sorting all of a large vocabulary is only needed where the order decides.
  const auto middle = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
  std::partial_sort(candidates_.begin(), middle, candidates_.end(), better);

  const double top = candidates_.front().logit;
  double total = 0;
  weights_.clear();
  for (std::size_t i = 0; i < kept; ++i) {
    weights_.push_back(std::exp((candidates_[i].logit - top) / options.temperature));
    total += weights_.back();
  }
  if (options.top_p < 1.0) {
    double reached = 0;
    std::size_t needed = 0;
    while (needed < kept && reached < options.top_p * total) reached += weights_[needed++];
    kept = needed;
  }
  if (options.min_p > 0)  // weights_ are relative to the best token's already
    while (kept > 1 && weights_[kept - 1] < options.min_p) --kept;

  total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weights_[i];
  double left = uniform_draw(options.seed, history.size()) * total;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].token;
  }
  return candidates_[kept - 1].token;
}

}  // namespace attune::runtime
