#include "text/word_piece.hpp"

#include "text/trie.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

Result<TokenId> unknown_id(const Vocabulary& vocabulary, const std::string& unk_token) {
  if (const auto id = vocabulary.id_of(unk_token)) return *id;
  return invalid_argument("tokenizer: the unknown token " + unk_token +
                          " is not in the vocabulary");
}

std::size_t count_chars(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(read_utf8(text).length);
  return count;
}

class WordPiece final : public SubwordModel {
 public:
  WordPiece(Vocabulary words, TokenId unk, const WordPieceOptions& options)
      : SubwordModel(std::move(words)), unk_(unk), max_chars_(options.max_chars_per_word) {
    for (TokenId id = 0; id < vocabulary().id_end(); ++id) {
      const auto piece = vocabulary().piece_of(id);
      const bool in_text = piece && piece->size() <= kMaxPieceBytes && !vocabulary().is_hidden(id);
      if (in_text) pieces_.insert(*piece, id);
    }
    continuation_ = pieces_.walk(options.continuing_prefix);
  }

  Status encode(std::string_view word, std::vector<TokenId>& out) const override {
    const std::size_t before = out.size();
    bool known = word.size() <= max_chars_ || count_chars(word) <= max_chars_;
    std::optional<Trie::Node> root = Trie::kRoot;
    for (std::size_t begin = 0; known && begin < word.size();) {
      const Match match = longest(word.substr(begin), root);
      known = match.id >= 0;
      if (known) out.push_back(match.id);
      begin += match.length;
      root = continuation_;
    }
    if (!known) {
      out.resize(before);
      out.push_back(unk_);
    }
    return {};
  }

 private:
  struct Match {
    TokenId id = -1;
    std::size_t length = 0;
  };

  Match longest(std::string_view text, std::optional<Trie::Node> node) const {
    Match match;
    for (std::size_t length = 0; node && length < text.size();) {
      node = pieces_.step(*node, text[length++]);
      if (node && pieces_.value(*node) >= 0) match = {pieces_.value(*node), length};
    }
    return match;
  }

  TokenId unk_;
  std::size_t max_chars_;
  Trie pieces_;
  std::optional<Trie::Node> continuation_;
};

class WordLevel final : public SubwordModel {
 public:
  WordLevel(Vocabulary words, TokenId unk) : SubwordModel(std::move(words)), unk_(unk) {}

  Status encode(std::string_view word, std::vector<TokenId>& out) const override {
    out.push_back(vocabulary().id_in_text(word).value_or(unk_));
    return {};
  }

 private:
  TokenId unk_;
};

}  // namespace

Result<std::unique_ptr<SubwordModel>> make_word_piece(Vocabulary vocabulary,
                                                      WordPieceOptions options) {
  const auto unk = unknown_id(vocabulary, options.unk_token);
  if (!unk.ok()) return unk.status();
  return std::unique_ptr<SubwordModel>(
      std::make_unique<WordPiece>(std::move(vocabulary), *unk, options));
}

Result<std::unique_ptr<SubwordModel>> make_word_level(Vocabulary vocabulary,
                                                      const std::string& unk_token) {
  const auto unk = unknown_id(vocabulary, unk_token);
  if (!unk.ok()) return unk.status();
  return std::unique_ptr<SubwordModel>(std::make_unique<WordLevel>(std::move(vocabulary), *unk));
}

}  // namespace attune::text
