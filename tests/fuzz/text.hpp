// What a fuzzer, and the corpus as an ordinary test, do with a tokenizer.json or a chat template:
// read it, and use it where it can be read.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template.hpp"
#include "text/stream_decoder.hpp"
#include "text/tokenizer.hpp"

namespace attune::fuzz {

inline void read_tokenizer(std::string_view bytes) {
  const auto tokenizer = text::tokenizer_from_json(bytes, bytes);
  const auto plain = text::tokenizer_from_json(bytes);
  if (!plain.ok()) return;
  const text::Tokenizer& t = tokenizer.ok() ? **tokenizer : **plain;
  for (const std::string_view sample :
       {"", "Hello, world! It's 12:30.\n\n  x", "\xff na\u00efve e\u0301 \u4e16\u754c \U0001F600",
        "<s> [CLS] <|im_end|> the aaaa </s>"}) {
    const auto ids = t.encode(sample);
    if (!ids.ok()) continue;
    (void)t.decode(*ids);
    text::StreamDecoder stream(t);
    for (const text::TokenId id : *ids) (void)stream.push(id);
    (void)stream.finish();
  }
}

inline void read_template(std::string_view bytes) {
  const auto chat = text::ChatTemplate::parse(bytes);
  if (!chat.ok()) return;
  (void)chat->render({
      .messages_json = R"([{"role": "system", "content": "Be brief."},
                           {"role": "user", "content": "Hi \u00e9"},
                           {"role": "assistant", "content": null, "tool_calls": [
                             {"id": "1", "function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]},
                           {"role": "tool", "content": "{}"}])",
      .tools_json = R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])",
      .special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}},
      .now = 1700000000,
  });
}

}  // namespace attune::fuzz
