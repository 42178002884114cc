// The vocabulary of a GGUF file: read into the parts of a pipeline.
#include <algorithm>
#include <functional>

#include "text/bpe.hpp"
#include "text/gguf_pre_tokenizers.hpp"
#include "text/pipeline.hpp"
#include "text/tokenizer.hpp"
#include "text/unigram.hpp"
#include "text/word_piece.hpp"

namespace attune::text {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

Regex own_pattern(std::string_view pattern) {
  auto regex = Regex::compile(pattern);
  require(regex.ok(), "a pattern of our own compiles");
  return std::move(*regex);
}

/// One kind of GGUF vocabulary on its way to a pipeline.
class Reader {
 public:
  explicit Reader(const GgufVocabulary& gguf) : gguf_(gguf) {}

  Result<TokenizerPtr> read() {
    if (Status s = check(); !s.ok()) return s;
    read_roles();
    Status s;
    if (gguf_.model == "gpt2")
      s = read_byte_level();
    else if (gguf_.model == "gemma4")
      s = read_merged_words();
    else if (gguf_.model == "llama")
      s = read_scored_words();
    else if (gguf_.model == "bert")
      s = read_word_piece();
    else if (gguf_.model == "t5")
      s = read_unigram();
    else
      s = unsupported("GGUF tokenizer model \"" + gguf_.model +
                      "\": want gpt2, llama, bert, t5 or gemma4");
    if (!s.ok()) return s;
    return make_pipeline(std::move(parts_));
  }

 private:
  Status check() const {
    const std::size_t count = gguf_.tokens.size();
    if (count == 0) return invalid_argument("GGUF: tokenizer.ggml.tokens is empty");
    if (count > static_cast<std::size_t>(kMaxTokenId)) {
      return invalid_argument("GGUF: tokenizer.ggml.tokens holds " + std::to_string(count) +
                              " tokens, want at most " + std::to_string(kMaxTokenId));
    }
    const auto bad = [&](std::string_view key, std::size_t have) {
      return invalid_argument("GGUF: tokenizer.ggml." + std::string(key) + " has " +
                              std::to_string(have) + " entries for " + std::to_string(count) +
                              " tokens");
    };
    if (!gguf_.scores.empty() && gguf_.scores.size() != count) {
      return bad("scores", gguf_.scores.size());
    }
    if (!gguf_.token_types.empty() && gguf_.token_types.size() != count) {
      return bad("token_type", gguf_.token_types.size());
    }
    for (const auto& role : {gguf_.bos, gguf_.eos, gguf_.eot, gguf_.eom, gguf_.unk, gguf_.sep,
                             gguf_.pad, gguf_.cls, gguf_.mask}) {
      if (role && (*role < 0 || static_cast<std::size_t>(*role) >= count)) {
        return invalid_argument("GGUF: a special token has the id " + std::to_string(*role) +
                                " in a vocabulary of " + std::to_string(count));
      }
    }
    return {};
  }

  [[nodiscard]] GgufTokenType type_of(TokenId id) const {
    return gguf_.token_types.empty() ? GgufTokenType::normal
                                     : gguf_.token_types[static_cast<std::size_t>(id)];
  }

  [[nodiscard]] TokenId count() const { return static_cast<TokenId>(gguf_.tokens.size()); }

  [[nodiscard]] const std::string& token(TokenId id) const {
    return gguf_.tokens[static_cast<std::size_t>(id)];
  }

  void read_roles() {
    parts_.special = {.bos = gguf_.bos,
                      .eos = gguf_.eos,
                      .unk = gguf_.unk,
                      .pad = gguf_.pad,
                      .cls = gguf_.cls,
                      .sep = gguf_.sep,
                      .mask = gguf_.mask,
                      .stop = {}};
    if (gguf_.eot) parts_.special.stop.push_back(*gguf_.eot);
    if (gguf_.eom) parts_.special.stop.push_back(*gguf_.eom);
    parts_.chat_template = gguf_.chat_template;
    for (TokenId id = 0; id < count(); ++id) {
      const GgufTokenType type = type_of(id);
      if (type != GgufTokenType::control && type != GgufTokenType::user_defined) continue;
      parts_.added_tokens.push_back(
          {.content = token(id), .id = id, .special = type == GgufTokenType::control});
    }
  }

  Vocabulary vocabulary(const std::function<std::string(TokenId)>& piece_of) const {
    Vocabulary vocabulary(gguf_.tokens.size());
    // Backwards, so that of equal pieces the first keeps its id.
    for (TokenId id = count(); id-- > 0;) vocabulary.add(piece_of(id), id);
    for (const AddedToken& token : parts_.added_tokens) {
      if (token.special) vocabulary.hide(token.content);
    }
    return vocabulary;
  }
  Vocabulary vocabulary() const {
    return vocabulary([this](TokenId id) { return token(id); });
  }

  Result<std::vector<MergeRule>> merges() const {
    if (gguf_.merges.empty()) return invalid_argument("GGUF: tokenizer.ggml.merges is empty");
    std::vector<MergeRule> rules;
    rules.reserve(gguf_.merges.size());
    for (const std::string& line : gguf_.merges) {
      const std::size_t space = line.find(' ', 1);
      if (space == std::string::npos) {
        return invalid_argument("GGUF: merge \"" + line + "\" is not two pieces");
      }
      rules.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    return rules;
  }

  void frame(const std::optional<TokenId>& before, bool add_before,
             const std::optional<TokenId>& after, bool add_after) {
    if (before && add_before) parts_.frame.before.push_back(*before);
    if (after && add_after) parts_.frame.after.push_back(*after);
  }

  template <class Model>
  Status set_model(Model model) {
    if (!model.ok()) return model.status();
    parts_.model = std::move(*model);
    return {};
  }

  /// Spaces become marks before encoding and spaces again after decoding.
  void mark_spaces(bool prefix) {
    if (prefix) parts_.normalizer.emplace_back(PrependText{std::string(kSpaceMark)});
    parts_.normalizer.emplace_back(
        ReplaceText{.pattern = Regex::literal(" "), .content = std::string(kSpaceMark)});
    parts_.decoder = {ReplaceInTokens{.pattern = Regex::literal(kSpaceMark), .content = " "},
                      ReadByteTokens{}, JoinTokens{}};
    if (prefix) parts_.decoder.emplace_back(StripTokens{.content = U' ', .start = 1});
  }

  Status read_byte_level() {
    const GgufPreTokenizer* pre =
        find_gguf_pre_tokenizer(gguf_.pre.empty() ? "default" : gguf_.pre);
    if (!pre) {
      return unsupported("GGUF: pre-tokenizer \"" + gguf_.pre +
                         "\" (tokenizer.ggml.pre) is not one that Attune knows");
    }
    for (const std::string_view pattern : pre->patterns) {
      parts_.pre_tokenizer.emplace_back(SplitAtRegex{.pattern = own_pattern(pattern)});
    }
    if (gguf_.add_space_prefix.value_or(false)) {
      parts_.pre_tokenizer.insert(parts_.pre_tokenizer.begin(), AddPrefixSpace{});
    }
    parts_.decoder = {ReadByteAlphabet{}};
    frame(gguf_.bos, gguf_.add_bos_token.value_or(pre->add_bos), gguf_.eos,
          gguf_.add_eos_token.value_or(false));
    const auto rules = merges();
    if (!rules.ok()) return rules.status();
    return set_model(
        make_bpe(vocabulary(), *rules, {.byte_level = true, .ignore_merges = pre->ignore_merges}));
  }

  [[nodiscard]] BpeOptions word_options() const {
    BpeOptions options{.byte_fallback = true, .fuse_unk = true};
    if (gguf_.unk) options.unk_token = token(*gguf_.unk);
    return options;
  }

  Status read_merged_words() {
    mark_spaces(gguf_.add_space_prefix.value_or(false));
    frame(gguf_.bos, gguf_.add_bos_token.value_or(true), gguf_.eos,
          gguf_.add_eos_token.value_or(false));
    const auto rules = merges();
    if (!rules.ok()) return rules.status();
    return set_model(make_bpe(vocabulary(), *rules, word_options()));
  }

  Status read_scored_words() {
    if (gguf_.scores.empty()) return invalid_argument("GGUF: tokenizer.ggml.scores is missing");
    mark_spaces(gguf_.add_space_prefix.value_or(true));
    frame(gguf_.bos, gguf_.add_bos_token.value_or(true), gguf_.eos,
          gguf_.add_eos_token.value_or(false));
    std::vector<bool> mergeable(gguf_.tokens.size());
    for (TokenId id = 0; id < count(); ++id) {
      mergeable[static_cast<std::size_t>(id)] = type_of(id) == GgufTokenType::normal;
    }
    return set_model(make_scored_bpe(vocabulary(), gguf_.scores, mergeable, word_options()));
  }

  /// GGUF marks the words of WordPiece where Hugging Face marks the continuations.
  [[nodiscard]] std::string word_piece_spelling(TokenId id) const {
    const std::string& piece = token(id);
    if (piece.starts_with(kSpaceMark)) return piece.substr(kSpaceMark.size());
    const bool plain =
        type_of(id) != GgufTokenType::normal || (piece.starts_with('[') && piece.ends_with(']'));
    return plain ? piece : "##" + piece;
  }

  Status read_word_piece() {
    if (!gguf_.unk) return invalid_argument("GGUF: tokenizer.ggml.unknown_token_id is missing");
    parts_.normalizer = {BertCleaning{}};
    parts_.pre_tokenizer = {
        SplitAtClass{.contains = is_white_space, .behavior = SplitBehavior::removed},
        SplitAtClass{.contains = is_punctuation}};
    parts_.decoder = {JoinWordPieces{}};
    const auto cls = gguf_.cls ? gguf_.cls : gguf_.bos;
    const auto sep = gguf_.sep ? gguf_.sep : gguf_.eos;
    parts_.special.cls = cls;
    parts_.special.sep = sep;
    frame(cls, gguf_.add_bos_token.value_or(true), sep, gguf_.add_sep_token.value_or(true));
    Vocabulary words = vocabulary([this](TokenId id) { return word_piece_spelling(id); });
    return set_model(make_word_piece(std::move(words), {.unk_token = token(*gguf_.unk)}));
  }

  Status read_unigram() {
    if (gguf_.scores.empty()) return invalid_argument("GGUF: tokenizer.ggml.scores is missing");
    if (!gguf_.precompiled_charsmap.empty()) {
      auto map = CharMap::parse(gguf_.precompiled_charsmap);
      if (!map.ok()) return map.status();
      parts_.normalizer.emplace_back(std::move(*map));
    }
    if (gguf_.remove_extra_whitespaces.value_or(false)) {
      parts_.normalizer.emplace_back(ReplaceText{own_pattern(R"(\A +| +\z)"), ""});
      parts_.normalizer.emplace_back(ReplaceText{own_pattern(" {2,}"), " "});
    }
    const bool prefix = gguf_.add_space_prefix.value_or(true);
    const auto prepend = prefix ? Metaspace::Prepend::always : Metaspace::Prepend::never;
    parts_.pre_tokenizer = {Metaspace{.prepend = prepend}};
    parts_.decoder = {MetaspaceToSpace{.drop_first = prefix}};
    frame(gguf_.bos, gguf_.add_bos_token.value_or(false), gguf_.eos,
          gguf_.add_eos_token.value_or(true));
    std::vector<double> scores(gguf_.scores.begin(), gguf_.scores.end());
    return set_model(make_unigram(vocabulary(), std::move(scores), gguf_.unk, false));
  }

  const GgufVocabulary& gguf_;
  PipelineParts parts_;
};

}  // namespace

Result<TokenizerPtr> tokenizer_from_gguf(const GgufVocabulary& vocabulary) {
  return Reader(vocabulary).read();
}

}  // namespace attune::text
