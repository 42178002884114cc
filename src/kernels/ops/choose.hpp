// The next token from a row of logits, on the host (layer kernels). What it says holds on a GPU too
// (cuda/choose.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attune::kernels::ops {

/// Temperature, then top-k, then top-p, then min-p. Tokens are drawn in the order of their logits,
/// the best first and the lowest id first among equals: cuts and the draw follow it.
struct Choice {
  double temperature = 0.0;  ///< 0 = the best token
  double top_p = 1.0;        ///< keep the fewest best tokens whose weights reach this share
  double min_p = 0.0;        ///< keep tokens of at least this share of the best one's weight
  double draw = 0.0;         ///< uniform in [0, 1): where in the weights kept the token lies
  std::int64_t top_k = 0;    ///< keep so many; 0 = all
};

constexpr std::int32_t kNoToken = -1;

class Chooser {
 public:
  /// kNoToken if every logit is NaN or -inf: such tokens are never chosen. The best if its logit is
  /// +inf.
  [[nodiscard]] std::int32_t choose(std::span<const float> logits, const Choice& choice);

 private:
  struct Candidate {
    std::int32_t token;
    float logit;
  };
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace attune::kernels::ops
