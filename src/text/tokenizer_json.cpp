// tokenizer.json of Hugging Face: read into the parts of a pipeline.
#include <algorithm>
#include <unordered_map>

#include "text/json_reader.hpp"
#include "text/pipeline.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_config.hpp"
#include "text/tokenizer_json_parts.hpp"

namespace attune::text {
namespace {

std::vector<AddedToken> read_added_tokens(const JsonReader& json) {
  std::vector<AddedToken> tokens;
  if (!json.has("added_tokens")) return tokens;
  json.for_each("added_tokens", [&](const JsonReader& entry) {
    const bool special = entry.flag_or("special", false);
    tokens.push_back({.content = entry.text("content"),
                      .id = static_cast<TokenId>(entry.at("id").integer(0, kMaxTokenId)),
                      .special = special,
                      .normalized = entry.flag_or("normalized", !special),
                      .single_word = entry.flag_or("single_word", false),
                      .strip_left = entry.flag_or("lstrip", false),
                      .strip_right = entry.flag_or("rstrip", false)});
  });
  return tokens;
}

TokenId read_named_token(const JsonReader& pair) {
  const auto& json = pair.json();
  if (json.is_array() && json.size() == 2 && json[1].is_number_unsigned() &&
      json[1].get<std::uint64_t>() <= kMaxTokenId) {
    return static_cast<TokenId>(json[1].get<std::uint64_t>());
  }
  pair.fail("a token and its id");
  return 0;
}

/// The ids that the template of a single sequence puts before and after it.
SpecialFrame read_template(const JsonReader& json) {
  SpecialFrame frame;
  int sequences = 0;
  const JsonReader tokens = json.at("special_tokens");
  json.for_each("single", [&](const JsonReader& part) {
    if (part.has("Sequence")) {
      if (++sequences > 1) part.fail("one sequence in the template of a single sequence");
      return;
    }
    const std::string name = part.at("SpecialToken").text("id");
    if (!part.ok()) return;
    tokens.at(name.c_str()).for_each("ids", [&](const JsonReader& id) {
      auto& side = sequences == 0 ? frame.before : frame.after;
      side.push_back(static_cast<TokenId>(id.integer(0, kMaxTokenId)));
    });
  });
  return frame;
}

void add_post_processor(const JsonReader& json, int depth, SpecialFrame& frame) {
  constexpr int kMaxNesting = 8;
  const std::string type = json.text("type");
  SpecialFrame outer;
  if (type == "Sequence") {
    if (depth >= kMaxNesting) return json.fail("fewer nested sequences");
    return json.for_each(
        "processors", [&](const JsonReader& step) { add_post_processor(step, depth + 1, frame); });
  }
  if (type == "TemplateProcessing") {
    outer = read_template(json);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    outer = {.before = {read_named_token(json.at("cls"))},
             .after = {read_named_token(json.at("sep"))}};
  } else if (type != "ByteLevel") {  // ByteLevel only moves offsets
    json.fail_with(unsupported(json.path() + ": post-processor \"" + type +
                               "\" is not one that Attune knows"));
  }
  frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
  frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
}

/// Byte-level BPE runs on raw bytes: the spelling in the byte alphabet, last step of the
/// pre-tokenizer, is left out where the model can do without.
bool drop_byte_spelling(std::vector<PreTokenizerStep>& steps, const JsonReader& model) {
  const bool raw = !steps.empty() && std::holds_alternative<SpellPieceBytes>(steps.back()) &&
                   takes_raw_bytes(model);
  if (raw) steps.pop_back();
  return raw;
}

}  // namespace

Result<TokenizerPtr> tokenizer_from_json(std::string_view tokenizer_json,
                                         std::string_view tokenizer_config_json) {
  const auto document = parse_json(tokenizer_json, "tokenizer.json");
  if (!document.ok()) return document.status();
  Status error;
  const JsonReader json(*document, "tokenizer.json", error);
  if (!json.has("model")) return invalid_argument("tokenizer.json: no \"model\"");

  PipelineParts parts;
  parts.normalizer = read_normalizer(json.at("normalizer"));
  parts.pre_tokenizer = read_pre_tokenizer(json.at("pre_tokenizer"));
  parts.decoder = read_decoder(json.at("decoder"));
  if (json.has("post_processor")) add_post_processor(json.at("post_processor"), 0, parts.frame);
  const bool byte_level = drop_byte_spelling(parts.pre_tokenizer, json.at("model"));
  parts.added_tokens = read_added_tokens(json);
  auto model = read_model(json.at("model"), byte_level, parts.added_tokens);
  if (!json.ok()) return json.status();
  if (!model.ok()) return model.status();
  parts.model = std::move(*model);
  for (AddedToken& token : parts.added_tokens) {
    // Where the model knows the token, its id is the one that counts.
    token.id = parts.model->vocabulary().id_of(token.content).value_or(token.id);
  }

  auto config = read_tokenizer_config(tokenizer_config_json, [&](std::string_view token) {
    const auto it = std::find_if(parts.added_tokens.begin(), parts.added_tokens.end(),
                                 [&](const AddedToken& added) { return added.content == token; });
    return it != parts.added_tokens.end() ? std::optional(it->id)
                                          : parts.model->vocabulary().id_of(token);
  });
  if (!config.ok()) return config.status();
  parts.special = config->special;
  parts.chat_template = std::move(config->chat_template);
  return make_pipeline(std::move(parts));
}

}  // namespace attune::text
