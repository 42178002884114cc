#include "text/tokenizer_config.hpp"

#include <array>
#include <utility>

#include "text/json_reader.hpp"

namespace attune::text {
namespace {

/// A token is written as its text or as an object that holds it.
std::optional<std::string> token_text(const JsonReader& config, const char* key) {
  if (!config.has(key)) return std::nullopt;
  const JsonReader token = config.at(key);
  return token.json().is_object() ? token.text("content") : token.text();
}

/// One template, or several with names; then the one named "default", else the first.
std::string read_template(const JsonReader& config) {
  if (!config.has("chat_template")) return {};
  if (config.at("chat_template").json().is_string()) return config.text("chat_template");
  std::string chosen;
  config.for_each("chat_template", [&](const JsonReader& entry) {
    if (chosen.empty() || entry.text("name") == "default") chosen = entry.text("template");
  });
  return chosen;
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(
    std::string_view text, const std::function<std::optional<TokenId>(std::string_view)>& id_of) {
  TokenizerConfig config;
  if (text.empty()) return config;
  const auto document = parse_json(text, "tokenizer_config.json");
  if (!document.ok()) return document.status();
  Status error;
  const JsonReader json(*document, "tokenizer_config.json", error);
  SpecialTokens& roles = config.special;
  const std::array<std::pair<const char*, std::optional<TokenId>*>, 7> kRoles{{
      {"bos_token", &roles.bos},
      {"eos_token", &roles.eos},
      {"unk_token", &roles.unk},
      {"pad_token", &roles.pad},
      {"cls_token", &roles.cls},
      {"sep_token", &roles.sep},
      {"mask_token", &roles.mask},
  }};
  for (const auto& [key, role] : kRoles) {
    if (const auto token = token_text(json, key)) *role = id_of(*token);
  }
  config.chat_template = read_template(json);
  if (json.has("add_bos_token")) config.add_bos = json.at("add_bos_token").flag();
  if (json.has("add_eos_token")) config.add_eos = json.at("add_eos_token").flag();
  if (!json.ok()) return json.status();
  return config;
}

}  // namespace attune::text
