// The models of tokenizer.json.
#include "text/bpe.hpp"
#include "text/tokenizer_json_parts.hpp"
#include "text/unigram.hpp"
#include "text/word_piece.hpp"

namespace attune::text {
namespace {

/// Old files leave the type out; their fields tell.
std::string type_of(const JsonReader& json) {
  if (json.has("type")) return json.text("type");
  if (json.has("merges")) return "BPE";
  if (json.has("vocab") && json.at("vocab").json().is_array()) return "Unigram";
  return json.has("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

void hide_control_tokens(Vocabulary& vocabulary, const std::vector<AddedToken>& added) {
  for (const AddedToken& token : added) {
    if (token.special) vocabulary.hide(token.content);
  }
}

Vocabulary read_vocabulary(const JsonReader& json, const std::vector<AddedToken>& added) {
  const JsonReader vocab = json.at("vocab");
  if (!vocab.json().is_object()) {
    vocab.fail("an object of pieces and ids");
    return {};
  }
  Vocabulary vocabulary(vocab.json().size());
  for (auto it = vocab.json().begin(); it != vocab.json().end(); ++it) {
    const std::string& piece = it.key();
    const nlohmann::json& id = it.value();
    if (id.is_number_unsigned() && id.get<std::uint64_t>() <= kMaxTokenId) {
      vocabulary.add(piece, static_cast<TokenId>(id.get<std::uint64_t>()));
    } else {
      vocab.fail_with(invalid_argument(vocab.path() + ": piece \"" + piece + "\" has the id " +
                                       id.dump() + ", want an integer from 0 to " +
                                       std::to_string(kMaxTokenId)));
    }
  }
  hide_control_tokens(vocabulary, added);
  return vocabulary;
}

/// "left right", or ["left", "right"].
MergeRule read_merge(const JsonReader& json) {
  if (json.json().is_string()) {
    const std::string line = json.text();
    const std::size_t space = line.find(' ');
    const bool one_space =
        space != std::string::npos && line.find(' ', space + 1) == std::string::npos;
    if (one_space) return {line.substr(0, space), line.substr(space + 1)};
  } else if (json.json().is_array() && json.json().size() == 2 && json.json()[0].is_string() &&
             json.json()[1].is_string()) {
    return {json.json()[0].get<std::string>(), json.json()[1].get<std::string>()};
  }
  json.fail("two pieces");
  return {};
}

Result<std::unique_ptr<SubwordModel>> read_bpe(const JsonReader& json, bool byte_level,
                                               const std::vector<AddedToken>& added) {
  if (json.has("dropout") && json.at("dropout").number() != 0) {
    return unsupported(json.path() + ".dropout: sampled segmentation is for training; remove it");
  }
  std::vector<MergeRule> merges;
  json.for_each("merges", [&](const JsonReader& merge) {
    if (merge.json().is_string() && merge.text().starts_with("#version")) return;
    merges.push_back(read_merge(merge));
  });
  BpeOptions options{.byte_level = byte_level,
                     .byte_fallback = json.flag_or("byte_fallback", false),
                     .ignore_merges = json.flag_or("ignore_merges", false),
                     .fuse_unk = json.flag_or("fuse_unk", false),
                     .unk_token = json.optional_text("unk_token"),
                     .continuing_subword_prefix = json.text_or("continuing_subword_prefix", ""),
                     .end_of_word_suffix = json.text_or("end_of_word_suffix", "")};
  Vocabulary vocabulary = read_vocabulary(json, added);
  if (!json.ok()) return json.status();
  // A file may name an unknown token that it never needs; then unknown characters are dropped.
  if (options.unk_token && !vocabulary.id_of(*options.unk_token)) options.unk_token.reset();
  return make_bpe(std::move(vocabulary), merges, std::move(options));
}

Result<std::unique_ptr<SubwordModel>> read_unigram(const JsonReader& json,
                                                   const std::vector<AddedToken>& added) {
  Vocabulary vocabulary;
  std::vector<double> scores;
  json.for_each("vocab", [&](const JsonReader& entry) {
    const auto& pair = entry.json();
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number()) {
      return entry.fail("a piece and its score");
    }
    if (scores.size() > static_cast<std::size_t>(kMaxTokenId)) return entry.fail("fewer pieces");
    vocabulary.add(pair[0].get<std::string>(), static_cast<TokenId>(scores.size()));
    scores.push_back(pair[1].get<double>());
  });
  hide_control_tokens(vocabulary, added);
  std::optional<TokenId> unk;
  if (json.has("unk_id")) {
    unk = static_cast<TokenId>(json.at("unk_id").integer(0, kMaxTokenId));
  }
  const bool byte_fallback = json.flag_or("byte_fallback", false);
  if (!json.ok()) return json.status();
  return make_unigram(std::move(vocabulary), std::move(scores), unk, byte_fallback);
}

Result<std::unique_ptr<SubwordModel>> read_word_piece(const JsonReader& json,
                                                      const std::vector<AddedToken>& added) {
  WordPieceOptions options{.unk_token = json.text_or("unk_token", "[UNK]"),
                           .continuing_prefix = json.text_or("continuing_subword_prefix", "##")};
  if (json.has("max_input_chars_per_word")) {
    options.max_chars_per_word =
        static_cast<std::size_t>(json.at("max_input_chars_per_word").integer(0, INT32_MAX));
  }
  Vocabulary vocabulary = read_vocabulary(json, added);
  if (!json.ok()) return json.status();
  return make_word_piece(std::move(vocabulary), std::move(options));
}

}  // namespace

bool takes_raw_bytes(const JsonReader& model) {
  return type_of(model) == "BPE" && !model.flag_or("byte_fallback", false) &&
         model.text_or("continuing_subword_prefix", "").empty() &&
         model.text_or("end_of_word_suffix", "").empty();
}

Result<std::unique_ptr<SubwordModel>> read_model(const JsonReader& json, bool byte_level,
                                                 const std::vector<AddedToken>& added) {
  const std::string type = type_of(json);
  if (type == "BPE") return read_bpe(json, byte_level, added);
  if (type == "Unigram") return read_unigram(json, added);
  if (type == "WordPiece") return read_word_piece(json, added);
  if (type == "WordLevel") {
    const std::string unk = json.text_or("unk_token", "<unk>");
    Vocabulary vocabulary = read_vocabulary(json, added);
    if (!json.ok()) return json.status();
    return make_word_level(std::move(vocabulary), unk);
  }
  if (!json.ok()) return json.status();
  return unsupported(json.path() + ": model \"" + type +
                     "\" is not BPE, Unigram, WordPiece or WordLevel");
}

}  // namespace attune::text
