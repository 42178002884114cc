// The next token from a row of logits (layer runtime).
//
// The draw depends on the seed and the token's position alone: neither the batch nor an earlier
// preemption changes it. Order of the rules: repetition penalty, then those of model/choice.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/status.hpp>

#include "model/choice.hpp"
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
  std::vector<float> logits_;
  model::Chooser chooser_;
};

/// Uniform in [0, 1): a pure function of its arguments.
[[nodiscard]] double uniform_draw(std::uint64_t seed, std::uint64_t position);

/// How the token at `position` is taken from its logits, once these have their penalties.
[[nodiscard]] model::Choice choice_of(const SamplingOptions& options, std::size_t position);

/// The rule of where tokens are chosen. A device chooses from its logits as they are: a request
/// whose logits are changed first (penalties know its history), or kept, or scored, has them copied
/// to the host and its tokens chosen there.
[[nodiscard]] bool needs_host(const Request& request);

}  // namespace attune::runtime
