// Ids and texts that Hugging Face's `tokenizers` gave for the lines of corpus.json; see
// tests/data/text/make_answers.py.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files.hpp"
#include "text/stream_decoder.hpp"
#include "text/tokenizer.hpp"

namespace attune::text {

inline std::vector<std::string> corpus() {
  return nlohmann::json::parse(read_data("corpus.json")).get<std::vector<std::string>>();
}

inline std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                            bool skip_special) {
  StreamDecoder stream(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  return text + stream.finish();
}

inline void expect_answers(const Tokenizer& tokenizer, const std::string& file) {
  const auto lines = corpus();
  const auto answers = nlohmann::json::parse(read_data(file))["lines"];
  ASSERT_EQ(answers.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(file + " line " + std::to_string(i) + ": " + lines[i]);
    const auto& answer = answers[i];
    const auto want = answer["ids"].get<std::vector<TokenId>>();
    const auto have = tokenizer.encode(lines[i]);
    ASSERT_TRUE(have.ok()) << have.status().text();
    EXPECT_EQ(*have, want);
    if (answer.contains("bare")) {
      EXPECT_EQ(*tokenizer.encode(lines[i], {.add_special = false}),
                answer["bare"].get<std::vector<TokenId>>());
    }
    const auto text = answer["text"].get<std::string>();
    const std::string full = answer.value("full_text", text);
    EXPECT_EQ(tokenizer.decode(want), text);
    EXPECT_EQ(tokenizer.decode(want, false), full);
    EXPECT_EQ(streamed(tokenizer, want, true), text);
    EXPECT_EQ(streamed(tokenizer, want, false), full);
  }
}

}  // namespace attune::text
