// A request: token ids, limits, and where its keys lie. Nothing below this layer knows text (layer
// runtime).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/prefix_cache.hpp>
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
  bool want_scores = false;      ///< keep the log-probability of every token after the first
  bool want_logits = false;      ///< keep the logits of every position (verification)
  std::int64_t logits_from = 0;  ///< …from this one on; those before may come from the prefix cache
  /// Teacher forcing: these follow the prompt whatever the logits say; max_new_tokens is theirs.
  std::vector<std::int32_t> forced_tokens{};
  CacheNamespace space{};  ///< whose cached prefixes it may use and leaves
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

/// A request's dealings with the prefix cache.
struct SharedPrefix {
  std::int64_t cached_tokens = 0;  ///< of the prompt, not computed when the request first started
  std::int64_t inserted = 0;       ///< leading tokens that the cache has, under `lock`
  std::int64_t branch = 0;      ///< tokens that others have too, but without recurrent states there
  std::int64_t checkpoint = 0;  ///< the last position with states
  PrefixLock lock;
  std::shared_ptr<const void> state;  ///< to start from, or to insert
};

struct Request {
  RequestId id{};
  RequestOptions options;
  std::vector<std::int32_t> tokens;  ///< the prompt, then what was generated
  std::int64_t prompt_len = 0;
  std::int64_t computed = 0;               ///< leading tokens whose keys are in the cache
  std::vector<cache::RequestPages> pages;  ///< one a cache group
  std::int32_t state_slot = -1;            ///< of the recurrent states; -1 = none
  std::int32_t draft_state_slot = -1;      ///< of the states behind the drafts being verified
  std::int64_t lag = 0;              ///< accepted drafts that the recurrent states have yet to pass
  std::vector<std::int32_t> drafts;  ///< guesses for the next step, which may leave them out
  DraftPace pace;
  SharedPrefix prefix;

  FinishReason finish_reason = FinishReason::none;
  Status failure;              ///< why, when finish_reason is `failed`
  std::vector<float> logits;   ///< want_logits: [computed - logits_from, vocab]
  std::vector<double> scores;  ///< want_scores: natural log-probability of tokens 1, 2, …

  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] std::int64_t num_generated() const { return num_tokens() - prompt_len; }
  /// All but the newest token computed, and what lags: the next step is a decode.
  [[nodiscard]] bool decoding() const { return computed > 0 && computed + lag + 1 == num_tokens(); }
  /// Every position's logits are computed, not only the last one's…
  [[nodiscard]] bool wants_all_rows() const { return options.want_logits || options.want_scores; }
  /// …from here on.
  [[nodiscard]] std::int64_t first_wanted() const {
    return options.want_scores ? 0 : options.want_logits ? options.logits_from : INT64_MAX;
  }
  /// Guesses may follow its newest token: nobody dictates its tokens or wants rows of its own.
  [[nodiscard]] bool may_speculate() const {
    return decoding() && !finished() && !wants_all_rows() && options.forced_tokens.empty();
  }
  [[nodiscard]] bool finished() const { return finish_reason != FinishReason::none; }
};

}  // namespace attune::runtime
