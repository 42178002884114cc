#include "runtime/sampler.hpp"

#include <cmath>
#include <string>

namespace attune::runtime {
namespace {

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

model::Choice choice_of(const SamplingOptions& options, std::size_t position) {
  return {.temperature = options.temperature,
          .top_p = options.top_p,
          .min_p = options.min_p,
          .draw = uniform_draw(options.seed, position),
          .top_k = options.top_k};
}

bool needs_host(const Request& request) {
  return request.wants_all_rows() || request.options.sampling.repetition_penalty != 1.0;
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
  const std::int32_t token = chooser_.choose(scores, choice_of(options, history.size()));
  if (token == model::kNoToken) return no_number();
  return token;
}

}  // namespace attune::runtime
