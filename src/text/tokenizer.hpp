// Text to token ids and back.
//
//   auto tokenizer = tokenizer_from_json(read("tokenizer.json"), read("tokenizer_config.json"));
//   if (!tokenizer.ok()) return tokenizer.status();
//   auto ids = (*tokenizer)->encode("Hello");
//   StreamDecoder stream(**tokenizer);
//   for (TokenId id : *ids) std::fputs(stream.push(id).c_str(), stdout);
//
// Ids equal those of Hugging Face's `tokenizers` library. Bytes that are no UTF-8 are read as
// U+FFFD, one for each maximal ill-formed subpart.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

#include "text/gguf_vocabulary.hpp"
#include "text/token_id.hpp"

namespace attune::text {

struct EncodeOptions {
  /// Adds what the model expects around a sequence: BOS, [CLS] and [SEP], ...
  bool add_special = true;
  /// Reads control tokens spelled out in the text. Off for text of unknown origin, which must not
  /// be able to end a turn.
  bool parse_special = true;
};

/// The tokens with a role. Absent where the vocabulary has none.
struct SpecialTokens {
  std::optional<TokenId> bos, eos, unk, pad, cls, sep, mask;
  /// Every token that ends a generation: eos and the end-of-turn tokens. Sorted.
  std::vector<TokenId> stop;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Fails only where the model itself cannot go on: no unknown token, a pattern that gives up.
  [[nodiscard]] virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                                            EncodeOptions options = {}) const = 0;

  /// Valid UTF-8. Ids outside the vocabulary are passed over.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids,
                                           bool skip_special = true) const = 0;

  /// As decode, but bytes that are no UTF-8 (half a character at the end) stay as they are.
  [[nodiscard]] virtual std::string decode_bytes(std::span<const TokenId> ids,
                                                 bool skip_special = true) const = 0;

  [[nodiscard]] virtual std::optional<TokenId> id_of(std::string_view piece) const = 0;
  [[nodiscard]] virtual std::optional<std::string> piece_of(TokenId id) const = 0;

  /// One more than the largest id.
  [[nodiscard]] virtual TokenId vocab_size() const = 0;
  [[nodiscard]] virtual bool is_special(TokenId id) const = 0;

  [[nodiscard]] const SpecialTokens& special() const { return special_; }
  /// The chat template that came with the vocabulary; empty where there is none.
  [[nodiscard]] const std::string& chat_template() const { return chat_template_; }

 protected:
  SpecialTokens special_;
  std::string chat_template_;
};

using TokenizerPtr = std::unique_ptr<const Tokenizer>;

/// From the contents of Hugging Face's tokenizer.json and, for roles and the chat template,
/// tokenizer_config.json (may be empty).
Result<TokenizerPtr> tokenizer_from_json(std::string_view tokenizer_json,
                                         std::string_view tokenizer_config_json = {});

/// From the metadata of a GGUF file.
Result<TokenizerPtr> tokenizer_from_gguf(const GgufVocabulary& vocabulary);

/// From the bytes of a SentencePiece model file (tokenizer.model), through SentencePiece.
Result<TokenizerPtr> tokenizer_from_sentencepiece(std::string_view model_bytes,
                                                  std::string_view tokenizer_config_json = {});

}  // namespace attune::text
