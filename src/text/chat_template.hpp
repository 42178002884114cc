// Chat templates: the Jinja2 programs that come with models and turn a conversation into a prompt.
//
//   auto chat = ChatTemplate::parse(tokenizer.chat_template());
//   if (!chat.ok()) return chat.status();
//   auto prompt = chat->render({.messages = {{"user", "Hello"}},
//                               .special_tokens = named_special_tokens(tokenizer)});
//
// The subset is the one that templates in use need, in the environment that transformers gives
// them: trim_blocks and lstrip_blocks, break and continue, tojson as json.dumps, raise_exception,
// strftime_now. A template is a stranger's program: the work, depth and memory of one rendering are
// limited, and nothing outside the request is in its reach.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <attune/status.hpp>

#include "text/tokenizer.hpp"

namespace attune::text {

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatRequest {
  std::vector<ChatMessage> messages = {};
  /// Messages with more to them (tool calls, parts), as a JSON array; replaces `messages`.
  std::string messages_json = {};
  std::string tools_json = {};  ///< a JSON array, or empty: no tools
  /// Further variables as a JSON object, such as {"enable_thinking": false}.
  std::string variables_json = {};
  bool add_generation_prompt = true;
  /// "bos_token" to its text, and so on.
  std::vector<std::pair<std::string, std::string>> special_tokens = {};
  /// Seconds since 1970, for templates that print the date (in UTC).
  std::optional<std::int64_t> now = {};
};

/// The special tokens of a tokenizer under the names that templates use.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> named_special_tokens(
    const Tokenizer& tokenizer);

class ChatTemplate {
 public:
  /// Fails with the line of what is wrong.
  static Result<ChatTemplate> parse(std::string_view source);

  /// Fails with the template's own words where it calls raise_exception.
  [[nodiscard]] Result<std::string> render(const ChatRequest& request) const;

 private:
  struct Program;
  explicit ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace attune::text
