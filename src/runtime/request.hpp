// A request: token ids, limits, and where its keys lie. Nothing below this layer knows text (layer
// runtime).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

#include "cache/request_pages.hpp"
#include "runtime/speculation.hpp"

namespace attune::runtime {

enum class RequestId : std::int64_t {};

/// How the next token is chosen. Defaults are greedy.
struct SamplingOptions {
  double temperature = 0.0;  ///< 0 = greedy
  int top_k = 0;             ///< keep the k best; 0 = all
  double top_p = 1.0;        ///< keep the fewest best tokens whose probabilities reach top_p
  double min_p = 0.0;        ///< keep tokens of at least min_p times the best one's probability
  double repetition_penalty = 1.0;  ///< > 1 discourages tokens of the request so far
  std::uint64_t seed = 0;
};

struct RequestOptions {
  std::int64_t max_new_tokens = 64;
  SamplingOptions sampling{};
  std::vector<std::int32_t> stop_tokens{};  ///< end the request and are not part of its text
  bool want_scores = false;  ///< keep the log-probability of every token after the first
  bool want_logits = false;  ///< keep the logits of every position (verification)
  /// Teacher forcing: these follow the prompt whatever the logits say; max_new_tokens is theirs.
  std::vector<std::int32_t> forced_tokens{};
};

enum class FinishReason : std::uint8_t { none, stop, length, context, cancelled, failed };

[[nodiscard]] constexpr std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "none";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::failed: return "failed";
  }
  return "?";
}

struct Request {
  RequestId id{};
  RequestOptions options;
  std::vector<std::int32_t> tokens;  ///< the prompt, then what was generated
  std::int64_t prompt_len = 0;
  std::int64_t computed = 0;               ///< leading tokens whose keys are in the cache
  std::vector<cache::RequestPages> pages;  ///< one a cache group
  std::int32_t state_slot = -1;            ///< of the recurrent states; -1 = none
  std::int32_t draft_state_slot = -1;      ///< of the states past the drafts being verified
  std::vector<std::int32_t> drafts;        ///< guesses for the next step, which may leave them out
  DraftPace pace;

  FinishReason finish_reason = FinishReason::none;
  Status failure;              ///< why, when finish_reason is `failed`
  std::vector<float> logits;   ///< want_logits: [computed, vocab]
  std::vector<double> scores;  ///< want_scores: natural log-probability of tokens 1, 2, …

  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] std::int64_t num_generated() const { return num_tokens() - prompt_len; }
  /// All but the newest token computed: the next step is a decode.
  [[nodiscard]] bool decoding() const { return computed > 0 && computed + 1 == num_tokens(); }
  /// Every position's logits are computed, not only the last one's.
  [[nodiscard]] bool wants_all_rows() const { return options.want_logits || options.want_scores; }
  /// Guesses may follow its newest token: nobody dictates its tokens or wants rows of its own.
  [[nodiscard]] bool may_speculate() const {
    return num_generated() > 0 && computed > 0 && !finished() && !wants_all_rows() &&
           options.forced_tokens.empty();
  }
  [[nodiscard]] bool finished() const { return finish_reason != FinishReason::none; }
};

}  // namespace attune::runtime
