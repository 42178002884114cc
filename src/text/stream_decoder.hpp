// Text of a generation while it is being generated.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"

namespace attune::text {

/// Turns ids into text one by one. What it hands out is always whole UTF-8 characters: bytes of an
/// unfinished character wait for the next id. The pieces together are the decoded text, but that
/// broken bytes give one U+FFFD for each ill-formed subpart, whatever kind of token they came from.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  /// The text that `id` adds; may be empty.
  std::string push(TokenId id);

  /// What is left at the end: U+FFFD for a character that never finished.
  std::string finish();

 private:
  void forget_shown(std::size_t pending);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  /// Ids whose text is not all out, after one that is: how a token reads depends on the one before.
  std::vector<TokenId> window_;
  std::size_t shown_ = 0;  ///< bytes of the window's text that are out
};

}  // namespace attune::text
