// Normalisers, pre-tokenizers and decoders of tokenizer.json.
#include <array>

#include "text/base64.hpp"
#include "text/tokenizer_json_parts.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

// Sequences inside sequences occur once in practice.
constexpr int kMaxNesting = 8;

void fail_unknown(const JsonReader& json, std::string_view part, const std::string& type) {
  json.fail_with(unsupported(json.path() + ": " + std::string(part) + " \"" + type +
                             "\" is not one that Attune knows"));
}

/// {"String": "x"} or {"Regex": "x"}; a bare string is a literal. Nothing when it does not compile.
std::optional<Regex> read_pattern(const JsonReader& json) {
  if (!json.has("Regex"))
    return Regex::literal(json.has("String") ? json.text("String") : json.text());
  auto regex = Regex::compile(json.text("Regex"));
  if (!regex.ok()) {
    json.fail_with({regex.status().code(), json.path() + ": " + regex.status().text()});
    return std::nullopt;
  }
  return std::move(*regex);
}

char32_t read_char(const JsonReader& json) {
  const std::string text = json.text();
  if (!text.empty() && read_utf8(text).length == text.size()) return read_utf8(text).code;
  json.fail("one character");
  return U' ';
}

SplitBehavior read_behavior(const JsonReader& json, SplitBehavior otherwise) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames{{
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"Contiguous", SplitBehavior::contiguous},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
  }};
  if (!json.has("behavior")) return otherwise;
  const std::string name = json.text("behavior");
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  json.at("behavior").fail("a split behaviour such as \"Isolated\"");
  return otherwise;
}

Regex must_compile(std::string_view pattern) {
  auto regex = Regex::compile(pattern);
  require(regex.ok(), "a pattern of our own compiles");
  return std::move(*regex);
}

void add_normalizer(const JsonReader& json, int depth, std::vector<NormalizerStep>& steps) {
  const std::string type = json.text("type");
  if (type == "Sequence") {
    if (depth >= kMaxNesting) return json.fail("fewer nested sequences");
    json.for_each("normalizers",
                  [&](const JsonReader& step) { add_normalizer(step, depth + 1, steps); });
  } else if (type == "NFC") {
    steps.emplace_back(NormalForm::nfc);
  } else if (type == "NFD") {
    steps.emplace_back(NormalForm::nfd);
  } else if (type == "NFKC") {
    steps.emplace_back(NormalForm::nfkc);
  } else if (type == "NFKD") {
    steps.emplace_back(NormalForm::nfkd);
  } else if (type == "Lowercase") {
    steps.emplace_back(LowercaseText{});
  } else if (type == "StripAccents") {
    steps.emplace_back(StripMarks{});
  } else if (type == "Nmt") {
    steps.emplace_back(NmtCleaning{});
  } else if (type == "ByteLevel") {
    steps.emplace_back(SpellBytes{});
  } else if (type == "Strip") {
    steps.emplace_back(StripSpace{.left = json.flag_or("strip_left", true),
                                  .right = json.flag_or("strip_right", true)});
  } else if (type == "Prepend") {
    steps.emplace_back(PrependText{json.text("prepend")});
  } else if (type == "Replace") {
    const auto pattern = read_pattern(json.at("pattern"));
    const std::string content = json.text("content");
    if (pattern) steps.emplace_back(ReplaceText{*pattern, content});
  } else if (type == "BertNormalizer") {
    const bool lowercase = json.flag_or("lowercase", true);
    steps.emplace_back(BertCleaning{.clean_text = json.flag_or("clean_text", true),
                                    .pad_cjk = json.flag_or("handle_chinese_chars", true),
                                    .strip_accents = json.flag_or("strip_accents", lowercase),
                                    .lowercase = lowercase});
  } else if (type == "Precompiled") {
    const auto blob = decode_base64(json.text_or("precompiled_charsmap", ""));
    if (!blob) return json.at("precompiled_charsmap").fail("base64");
    if (blob->empty()) return;
    auto map = CharMap::parse(*blob);
    if (map.ok())
      steps.emplace_back(std::move(*map));
    else
      json.fail_with(map.status());
  } else {
    fail_unknown(json, "normalizer", type);
  }
}

Metaspace read_metaspace(const JsonReader& json) {
  Metaspace metaspace;
  if (json.has("replacement")) {
    metaspace.replacement.clear();
    append_utf8(metaspace.replacement, read_char(json.at("replacement")));
  }
  const std::string scheme = json.text_or("prepend_scheme", "always");
  if (scheme == "first")
    metaspace.prepend = Metaspace::Prepend::first;
  else if (scheme == "never")
    metaspace.prepend = Metaspace::Prepend::never;
  else if (scheme != "always")
    json.at("prepend_scheme").fail("always, first or never");
  if (!json.flag_or("add_prefix_space", true)) metaspace.prepend = Metaspace::Prepend::never;
  metaspace.split = json.flag_or("split", true);
  return metaspace;
}

void add_pre_tokenizer(const JsonReader& json, int depth, std::vector<PreTokenizerStep>& steps) {
  const std::string type = json.text("type");
  if (type == "Sequence") {
    if (depth >= kMaxNesting) return json.fail("fewer nested sequences");
    json.for_each("pretokenizers",
                  [&](const JsonReader& step) { add_pre_tokenizer(step, depth + 1, steps); });
  } else if (type == "ByteLevel") {
    if (json.flag_or("add_prefix_space", true)) steps.emplace_back(AddPrefixSpace{});
    if (json.flag_or("use_regex", true)) {
      steps.emplace_back(SplitAtRegex{.pattern = must_compile(gpt2_pattern())});
    }
    steps.emplace_back(SpellPieceBytes{});
  } else if (type == "Split") {
    const auto pattern = read_pattern(json.at("pattern"));
    const bool invert = json.flag_or("invert", false);
    const auto behavior = read_behavior(json, SplitBehavior::isolated);
    if (pattern) {
      steps.emplace_back(SplitAtRegex{.pattern = *pattern, .behavior = behavior, .invert = invert});
    }
  } else if (type == "Digits") {
    steps.emplace_back(SplitAtClass{.contains = is_numeric,
                                    .behavior = json.flag_or("individual_digits", false)
                                                    ? SplitBehavior::isolated
                                                    : SplitBehavior::contiguous});
  } else if (type == "Punctuation") {
    steps.emplace_back(SplitAtClass{.contains = is_punctuation,
                                    .behavior = read_behavior(json, SplitBehavior::isolated)});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(
        SplitAtClass{.contains = is_white_space, .behavior = SplitBehavior::removed});
  } else if (type == "BertPreTokenizer") {
    steps.emplace_back(
        SplitAtClass{.contains = is_white_space, .behavior = SplitBehavior::removed});
    steps.emplace_back(SplitAtClass{.contains = is_punctuation});
  } else if (type == "Whitespace") {
    steps.emplace_back(
        SplitAtRegex{.pattern = must_compile(R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)"),
                     .behavior = SplitBehavior::removed,
                     .invert = true});
  } else if (type == "CharDelimiterSplit") {
    steps.emplace_back(SplitAtChar{read_char(json.at("delimiter"))});
  } else if (type == "FixedLength") {
    const std::int64_t length = json.has("length") ? json.at("length").integer(1, INT32_MAX) : 5;
    steps.emplace_back(SplitEvery{static_cast<std::size_t>(length)});
  } else if (type == "Metaspace") {
    steps.emplace_back(read_metaspace(json));
  } else {
    fail_unknown(json, "pre-tokenizer", type);
  }
}

void add_decoder(const JsonReader& json, int depth, std::vector<DecoderStep>& steps) {
  const std::string type = json.text("type");
  const auto count = [&](const char* key) {
    return static_cast<std::size_t>(json.at(key).integer(0, INT32_MAX));
  };
  if (type == "Sequence") {
    if (depth >= kMaxNesting) return json.fail("fewer nested sequences");
    json.for_each("decoders", [&](const JsonReader& step) { add_decoder(step, depth + 1, steps); });
  } else if (type == "ByteLevel") {
    steps.emplace_back(ReadByteAlphabet{});
  } else if (type == "ByteFallback") {
    steps.emplace_back(ReadByteTokens{});
  } else if (type == "Fuse") {
    steps.emplace_back(JoinTokens{});
  } else if (type == "Replace") {
    const auto pattern = read_pattern(json.at("pattern"));
    const std::string content = json.text("content");
    if (pattern) steps.emplace_back(ReplaceInTokens{*pattern, content});
  } else if (type == "Strip") {
    steps.emplace_back(StripTokens{
        .content = read_char(json.at("content")), .start = count("start"), .stop = count("stop")});
  } else if (type == "Metaspace") {
    const Metaspace metaspace = read_metaspace(json);
    steps.emplace_back(
        MetaspaceToSpace{.replacement = metaspace.replacement,
                         .drop_first = metaspace.prepend != Metaspace::Prepend::never});
  } else if (type == "WordPiece") {
    steps.emplace_back(JoinWordPieces{.prefix = json.text_or("prefix", "##"),
                                      .cleanup = json.flag_or("cleanup", true)});
  } else if (type == "BPEDecoder") {
    steps.emplace_back(SuffixToSpace{json.text_or("suffix", "</w>")});
  } else {
    fail_unknown(json, "decoder", type);
  }
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const JsonReader& json) {
  std::vector<NormalizerStep> steps;
  if (!json.json().is_null()) add_normalizer(json, 0, steps);
  return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonReader& json) {
  std::vector<PreTokenizerStep> steps;
  if (!json.json().is_null()) add_pre_tokenizer(json, 0, steps);
  return steps;
}

std::vector<DecoderStep> read_decoder(const JsonReader& json) {
  std::vector<DecoderStep> steps;
  if (!json.json().is_null()) add_decoder(json, 0, steps);
  return steps;
}

}  // namespace attune::text
