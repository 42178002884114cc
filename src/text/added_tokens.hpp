// Tokens that are found in the text before any model sees it: control tokens such as <|im_end|> and
// words added to a trained vocabulary.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

#include "text/token_id.hpp"
#include "text/trie.hpp"

namespace attune::text {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;      ///< a control token: skipped when decoding, if so asked
  bool normalized = false;   ///< matched in the normalised text, in normalised form
  bool single_word = false;  ///< not inside a word
  bool strip_left = false;   ///< takes the white space before it along
  bool strip_right = false;
};

/// Finds tokens of one kind (normalised or not) in a text, leftmost and longest first.
class AddedTokenFinder {
 public:
  /// A stretch of text: a token, or plain text where `id` is empty.
  struct Segment {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<TokenId> id;
  };

  /// `pattern` is the content as it appears in the searched text.
  Status add(const AddedToken& token, std::string_view pattern);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  /// Cuts `text` into segments that cover it. Special tokens are plain text unless `parse_special`.
  [[nodiscard]] std::vector<Segment> find(std::string_view text, bool parse_special) const;

 private:
  struct Hit {
    const AddedToken* token = nullptr;
    std::size_t length = 0;
  };
  [[nodiscard]] Hit longest_at(std::string_view text) const;

  Trie patterns_;  ///< to indices of tokens_
  std::vector<AddedToken> tokens_;
  std::vector<bool> first_bytes_ = std::vector<bool>(256);
};

}  // namespace attune::text
