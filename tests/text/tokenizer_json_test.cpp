#include <gtest/gtest.h>

#include "answers.hpp"
#include "files.hpp"

namespace attune::text {
namespace {

class TokenizerJson : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJson, AgreesWithHuggingFace) {
  const std::string name = GetParam();
  const auto tokenizer = tokenizer_from_json(read_data(name + ".tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  // The SentencePiece library has answers of its own for this one.
  const std::string answers = name == "spm_unigram" ? "spm_unigram_hf" : name;
  expect_answers(**tokenizer, answers + ".answers.json");
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJson,
                         testing::Values("smollm", "gpt2", "llama3", "qwen2", "gpt4o", "tekken",
                                         "deepseek_v3", "deepseek_coder", "falcon", "llama",
                                         "metaspace_first", "unigram", "word_piece", "word_level",
                                         "added_tokens", "suffix_bpe", "splits", "spm_unigram",
                                         "smollm2", "minilm"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace attune::text
