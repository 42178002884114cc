// SentencePiece model files, encoded by the SentencePiece library itself.
#include <sentencepiece_processor.h>

#include <algorithm>

#include "text/added_tokens.hpp"
#include "text/decoder.hpp"
#include "text/special_tokens.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_config.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

class SentencePieceTokenizer final : public Tokenizer {
 public:
  Status load(std::string_view model_bytes) {
    const auto loaded =
        processor_.LoadFromSerializedProto({model_bytes.data(), model_bytes.size()});
    if (!loaded.ok()) return invalid_argument("SentencePiece model: " + loaded.ToString());
    for (TokenId id = 0; id < processor_.GetPieceSize(); ++id) {
      if (!processor_.IsControl(id)) continue;
      const std::string& piece = processor_.IdToPiece(id);
      Status s = control_.add({.content = piece, .id = id, .special = true}, piece);
      if (!s.ok()) return s;
      if (ends_generation(piece)) special_.stop.push_back(id);
    }
    decoder_ = {ReplaceInTokens{.pattern = Regex::literal(kSpaceMark), .content = " "},
                ReadByteTokens{}, JoinTokens{}};
    const auto probe = processor_.EncodeAsPieces("a");
    if (!probe.empty() && probe.front().starts_with(kSpaceMark)) {
      decoder_.emplace_back(StripTokens{.content = U' ', .start = 1});
    }
    return {};
  }

  Status configure(std::string_view config_json) {
    auto config = read_tokenizer_config(config_json, [this](auto piece) { return id_of(piece); });
    if (!config.ok()) return config.status();
    const auto known = [](int id) { return id >= 0 ? std::optional<TokenId>(id) : std::nullopt; };
    const SpecialTokens named = config->special;
    special_.bos = named.bos ? named.bos : known(processor_.bos_id());
    special_.eos = named.eos ? named.eos : known(processor_.eos_id());
    special_.unk = named.unk ? named.unk : known(processor_.unk_id());
    special_.pad = named.pad ? named.pad : known(processor_.pad_id());
    special_.cls = named.cls;
    special_.sep = named.sep;
    special_.mask = named.mask;
    if (special_.eos) special_.stop.push_back(*special_.eos);
    std::sort(special_.stop.begin(), special_.stop.end());
    special_.stop.erase(std::unique(special_.stop.begin(), special_.stop.end()),
                        special_.stop.end());
    chat_template_ = std::move(config->chat_template);
    // Unless told otherwise: decoders (Llama, Gemma) begin with BOS; T5, which has none, ends with
    // EOS.
    add_bos_ = special_.bos && config->add_bos.value_or(true);
    add_eos_ = special_.eos && config->add_eos.value_or(!special_.bos);
    return {};
  }

  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const override {
    std::vector<TokenId> ids;
    if (options.add_special && add_bos_) ids.push_back(*special_.bos);
    const std::string repaired = is_valid_utf8(text) ? std::string() : to_valid_utf8(text);
    if (!repaired.empty()) text = repaired;
    for (const auto& segment : control_.find(text, options.parse_special)) {
      if (segment.id) {
        ids.push_back(*segment.id);
        continue;
      }
      std::vector<int> part;
      const auto encoded =
          processor_.Encode({text.data() + segment.begin, segment.end - segment.begin}, &part);
      if (!encoded.ok()) return invalid_argument("SentencePiece: " + encoded.ToString());
      ids.insert(ids.end(), part.begin(), part.end());
    }
    if (options.add_special && add_eos_) ids.push_back(*special_.eos);
    return ids;
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    return text::decode(decoder_, pieces_of(ids, skip_special), BrokenBytes::replace);
  }

  std::string decode_bytes(std::span<const TokenId> ids, bool skip_special) const override {
    return text::decode(decoder_, pieces_of(ids, skip_special), BrokenBytes::keep);
  }

  std::optional<TokenId> id_of(std::string_view piece) const override {
    const TokenId id = processor_.PieceToId({piece.data(), piece.size()});
    const bool found = id >= 0 && id < vocab_size() && processor_.IdToPiece(id) == piece;
    return found ? std::optional(id) : std::nullopt;
  }

  std::optional<std::string> piece_of(TokenId id) const override {
    if (id < 0 || id >= vocab_size()) return std::nullopt;
    return processor_.IdToPiece(id);
  }

  TokenId vocab_size() const override { return processor_.GetPieceSize(); }

  bool is_special(TokenId id) const override {
    return id >= 0 && id < vocab_size() && (processor_.IsControl(id) || processor_.IsUnknown(id));
  }

 private:
  std::vector<std::string> pieces_of(std::span<const TokenId> ids, bool skip_special) const {
    std::vector<std::string> pieces;
    for (const TokenId id : ids) {
      auto piece = piece_of(id);
      if (piece && !(skip_special && is_special(id))) pieces.push_back(std::move(*piece));
    }
    return pieces;
  }

  sentencepiece::SentencePieceProcessor processor_;
  AddedTokenFinder control_;
  std::vector<DecoderStep> decoder_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

}  // namespace

Result<TokenizerPtr> tokenizer_from_sentencepiece(std::string_view model_bytes,
                                                  std::string_view tokenizer_config_json) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  if (Status s = tokenizer->load(model_bytes); !s.ok()) return s;
  if (Status s = tokenizer->configure(tokenizer_config_json); !s.ok()) return s;
  return TokenizerPtr(std::move(tokenizer));
}

}  // namespace attune::text
