// The next token from a row of logits (layer runtime).
//
// The draw depends on the seed and the token's position alone: neither the batch nor an earlier
// preemption changes it. Order of the rules: repetition penalty, temperature, top-k, top-p, min-p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/status.hpp>

#include "runtime/request.hpp"

namespace attune::runtime {

/// A value outside its range, by name.
[[nodiscard]] Status validate(const SamplingOptions& options);

class Sampler {
 public:
  /// `history` is the request so far; the chosen token will sit at position history.size().
  [[nodiscard]] Result<std::int32_t> sample(std::span<const float> logits,
                                            std::span<const std::int32_t> history,
                                            const SamplingOptions& options);
  /// No token can be chosen.
  [[nodiscard]] static Status no_number();

 private:
  struct Candidate {
    std::int32_t token;
    float logit;
  };
  std::vector<float> logits_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

/// Uniform in [0, 1): a pure function of its arguments.
[[nodiscard]] double uniform_draw(std::uint64_t seed, std::uint64_t position);

}  // namespace attune::runtime
