#include "text/chat_template.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "files.hpp"

namespace attune::text {
namespace {

using nlohmann::ordered_json;

/// Jinja2's answers, see tests/data/text/make_templates.py.
const ordered_json& answers() {
  static const ordered_json document = ordered_json::parse(read_data("templates.json"));
  return document;
}

ChatRequest request_of(const ordered_json& test_case) {
  ChatRequest request{.messages_json = test_case["messages"].dump(),
                      .add_generation_prompt = test_case.value("add_generation_prompt", true),
                      .now = answers()["now"].get<std::int64_t>()};
  if (test_case.contains("tools")) request.tools_json = test_case["tools"].dump();
  if (test_case.contains("variables")) request.variables_json = test_case["variables"].dump();
  for (auto it = answers()["special"].begin(); it != answers()["special"].end(); ++it) {
    request.special_tokens.emplace_back(it.key(), it.value().get<std::string>());
  }
  return request;
}

/// The text or, where it fails, nothing and the error in `error`.
std::optional<std::string> render(std::string_view source, const ChatRequest& request,
                                  std::string* error = nullptr) {
  const auto chat = ChatTemplate::parse(source);
  const auto text = chat.ok() ? chat->render(request) : Result<std::string>(chat.status());
  if (text.ok()) return *text;
  if (error) *error = text.status().text();
  return std::nullopt;
}

void expect_answer(std::string_view source, const ChatRequest& request, const ordered_json& want) {
  std::string error;
  const auto text = render(source, request, &error);
  if (want.contains("error")) {
    EXPECT_FALSE(text.has_value()) << "Jinja2: " << want["error"] << "\nhave: " << *text;
    EXPECT_TRUE(error.starts_with("chat template, line ")) << error;
  } else {
    ASSERT_TRUE(text.has_value()) << error << "\nwant: " << want["text"];
    EXPECT_EQ(*text, want["text"].get<std::string>());
  }
}

TEST(ChatTemplate, FamiliesAgreeWithJinja2) {
  for (auto family = answers()["answers"].begin(); family != answers()["answers"].end(); ++family) {
    const std::string source = read_data("templates/" + family.key() + ".jinja");
    for (auto it = family.value().begin(); it != family.value().end(); ++it) {
      SCOPED_TRACE(family.key() + " " + it.key());
      expect_answer(source, request_of(answers()["cases"][it.key()]), it.value());
    }
  }
}

TEST(ChatTemplate, SnippetsAgreeWithJinja2) {
  const ChatRequest request = request_of(answers()["cases"]["tools"]);
  for (const auto& snippet : answers()["snippets"]) {
    const auto source = snippet["template"].get<std::string>();
    SCOPED_TRACE(source);
    expect_answer(source, request, snippet);
  }
}

TEST(ChatTemplate, PlainMessagesAreTheSameAsJson) {
  const std::string source = read_data("templates/smollm2.jinja");
  EXPECT_EQ(*render(source, {.messages = {{"user", "Hello!"}}}),
            *render(source, {.messages_json = R"([{"role": "user", "content": "Hello!"}])"}));
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  const auto error_of = [](std::string_view source) {
    std::string error;
    EXPECT_FALSE(render(source, {}, &error).has_value());
    return error;
  };
  EXPECT_EQ(error_of("a\nb\n{{ x | nope }}"),
            "chat template, line 3: no filter is called \"nope\"");
  EXPECT_EQ(error_of("\n\n{% if %}"), "chat template, line 3: want an expression, have '%}'");
  EXPECT_EQ(error_of("{% for x in [1] %}\n{{ y.z }}\n{% endfor %}"),
            "chat template, line 2: 'y' is undefined, so it has no .z");
  EXPECT_EQ(error_of("{{ raise_exception('roles must alternate') }}"),
            "chat template, line 1: roles must alternate");
  EXPECT_EQ(error_of(""), "chat template: the model comes without one");
  EXPECT_EQ(error_of("{% for x in [1] %}"),
            "chat template, line 1: want {% endfor %}, have the end");
  EXPECT_EQ(error_of("{{ strftime_now('%Y') }}"),
            "chat template, line 1: the template asks for the date, and none was given");
}

TEST(ChatTemplate, BadRequestsAreRefused) {
  const auto chat = ChatTemplate::parse("{{ messages }}");
  ASSERT_TRUE(chat.ok());
  EXPECT_FALSE(chat->render({.messages_json = "[{"}).ok());
  EXPECT_FALSE(chat->render({.variables_json = "[1]"}).ok());
  EXPECT_FALSE(chat->render({.tools_json = std::string(5000, '[') + std::string(5000, ']')}).ok());
}

TEST(ChatTemplate, HostileTemplatesEnd) {
  const std::string deep(100'000, '(');
  std::string chain = "{{ 1";
  for (int i = 0; i < 100'000; ++i) chain += "+1";
  std::string blocks;
  for (int i = 0; i < 100'000; ++i) blocks += "{% if 1 %}";
  const std::string hostile[] = {
      "{{ " + deep,
      chain + " }}",
      blocks,
      "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
      "{% for i in range(1000000000) %}{% endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{{ 'a' * 1000000000000 }}",
      "{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}"
      "{% endfor %}",
      "{% set ns = namespace() %}{% set ns.me = ns %}",
      "{% set ns = namespace() %}{% macro f() %}{% endmacro %}{% set ns.f = f %}",
      "{% set a = 'a' * 1000000 %}{% for i in range(1000) %}{{ (a ~ 'b') in a * 2 }}{% endfor %}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 2 ** 64 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{{ [1] | tojson(indent=1000000000) }}",
      "{{ 'a' | indent(1000000000000) }}",
      "{{ range(0, 100, 0) }}",
      "{{ 'a'[::0] }}",
  };
  for (const std::string& source : hostile) {
    SCOPED_TRACE(source.substr(0, 80));
    std::string error;
    EXPECT_FALSE(render(source, {}, &error).has_value());
    EXPECT_TRUE(error.starts_with("chat template, line ")) << error;
  }
}

}  // namespace
}  // namespace attune::text
