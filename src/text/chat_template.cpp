#include "text/chat_template.hpp"

#include <array>

#include "text/jinja/json_value.hpp"
#include "text/jinja/lexer.hpp"
#include "text/jinja/library.hpp"
#include "text/jinja/parser.hpp"
#include "text/jinja/renderer.hpp"
#include "text/utf8.hpp"

namespace attune::text {

struct ChatTemplate::Program {
  jinja::Block block;
};

std::vector<std::pair<std::string, std::string>> named_special_tokens(const Tokenizer& tokenizer) {
  const SpecialTokens& roles = tokenizer.special();
  const std::array<std::pair<const char*, std::optional<TokenId>>, 7> named{{
      {"bos_token", roles.bos},
      {"eos_token", roles.eos},
      {"unk_token", roles.unk},
      {"pad_token", roles.pad},
      {"cls_token", roles.cls},
      {"sep_token", roles.sep},
      {"mask_token", roles.mask},
  }};
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const auto& [name, id] : named) {
    if (const auto piece = id ? tokenizer.piece_of(*id) : std::nullopt) {
      tokens.emplace_back(name, *piece);
    }
  }
  return tokens;
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  constexpr std::size_t kLongest = 1 << 20;
  if (source.empty()) return invalid_argument("chat template: the model comes without one");
  if (source.size() > kLongest) return invalid_argument("chat template: longer than 1 MiB");
  auto tokens = jinja::tokenize(is_valid_utf8(source) ? source : to_valid_utf8(source));
  if (!tokens.ok()) return tokens.status();
  auto block = jinja::parse(std::move(*tokens));
  if (!block.ok()) return block.status();
  return ChatTemplate(std::make_shared<const Program>(Program{std::move(*block)}));
}

Result<std::string> ChatTemplate::render(const ChatRequest& request) const {
  using jinja::Value;
  jinja::Run run(request.now);
  jinja::Scope scope(nullptr);
  const jinja::Dict globals = jinja::global_functions();
  for (const auto& [name, function] : globals.members()) {
    scope.set(name, function);
  }
  for (const auto& [name, token] : request.special_tokens) scope.set(name, token);
  scope.set("add_generation_prompt", request.add_generation_prompt);

  jinja::List messages;
  for (const ChatMessage& message : request.messages) {
    jinja::Dict fields;
    fields.set("role", to_valid_utf8(message.role));
    fields.set("content", to_valid_utf8(message.content));
    messages.emplace_back(std::move(fields));
  }
  scope.set("messages", run.checked(std::move(messages)));
  const std::array<std::pair<const char*, const std::string*>, 2> documents{{
      {"messages", &request.messages_json},
      {"tools", &request.tools_json},
  }};
  scope.set("tools", Value::none());
  for (const auto& [name, text] : documents) {
    if (text->empty()) continue;
    auto value = jinja::value_from_json(run, *text, name);
    if (!value.ok()) return value.status();
    scope.set(name, std::move(*value));
  }
  if (!request.variables_json.empty()) {
    const auto variables = jinja::value_from_json(run, request.variables_json, "variables");
    if (!variables.ok()) return variables.status();
    if (!variables->is(Value::Kind::dict)) {
      return invalid_argument("chat template variables: want a JSON object");
    }
    for (const auto& [name, value] : variables->dict().members()) scope.set(name, value);
  }
  std::string text = jinja::Renderer(run).render(program_->block, scope);
  if (run.failed()) return run.status();
  return text;
}

}  // namespace attune::text
