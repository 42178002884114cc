// Speculation: guesses at a request's next tokens, which one step of the model verifies (layer
// runtime).
//
// Prompt lookup: where the request's last few tokens stood before, what followed them then is
// guessed to follow now. It needs no second model and costs a scan of the tokens; it pays where
// text repeats: code, quotes, summaries, tables (docs/decisions/0005-speculation.md).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <attune/status.hpp>

namespace attune::runtime {

/// Replaces `drafts` by up to `limit` guesses at what follows `tokens`.
using Propose = std::function<void(std::span<const std::int32_t> tokens, std::int64_t limit,
                                   std::vector<std::int32_t>& drafts)>;

struct SpeculationOptions {
  std::int64_t max_drafts = 0;  ///< tokens guessed ahead of a request, at most; 0 = no speculation
  std::int64_t min_ngram = 2;   ///< the shortest ending of a request that is looked up
  std::int64_t max_ngram = 4;   ///< the longest; a longer match counts no more
  /// Each draft is a decode of its own, so that near-ties fall as they do in decoding: its very
  /// bits where a backend's do not depend on neighbours. Otherwise a request's drafts are one
  /// target_verify batch, which reads the keys once and rounds as prefill does.
  bool verify_as_decodes = true;
  Propose propose{};  ///< another guesser than lookup: a draft model, an oracle

  [[nodiscard]] bool enabled() const { return max_drafts > 0; }
  /// The most rows one verification has: tokens that the states of linear layers have yet to pass
  /// (fewer than max_drafts), the newest one, and the drafts.
  [[nodiscard]] std::int64_t max_rows() const { return enabled() ? 2 * max_drafts : 1; }
};

/// A value outside its range, by name.
[[nodiscard]] Status validate_speculation(const SpeculationOptions& options);

/// Replaces `drafts` by up to `limit` guesses: what followed the latest earlier occurrence of the
/// longest ending of `tokens`. A repetition that reaches the end goes on into the guesses.
void propose_by_lookup(std::span<const std::int32_t> tokens, const SpeculationOptions& options,
                       std::int64_t limit, std::vector<std::int32_t>& drafts);

/// How far ahead to guess: twice as far after guesses that all came true, one further than they did
/// otherwise. Text that does not repeat costs a row a step at most.
class DraftPace {
 public:
  [[nodiscard]] std::int64_t length() const { return length_; }
  void record(std::int64_t drafted, std::int64_t accepted);

 private:
  static constexpr std::int64_t kFirst = 4;
  std::int64_t length_ = kFirst;
};

}  // namespace attune::runtime
