#include <gtest/gtest.h>

#include "answers.hpp"
#include "files.hpp"

namespace attune::text {
namespace {

class SentencePieceFile : public testing::TestWithParam<const char*> {};

TEST_P(SentencePieceFile, AgreesWithTheLibraryItself) {
  const std::string name = GetParam();
  const auto tokenizer = tokenizer_from_sentencepiece(read_data(name + ".model"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  const auto lines = corpus();
  const auto answers = nlohmann::json::parse(read_data(name + ".answers.json"))["lines"];
  ASSERT_EQ(answers.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(lines[i]);
    const auto want = answers[i]["ids"].get<std::vector<TokenId>>();
    const EncodeOptions literally{.parse_special = false};
    EXPECT_EQ(*(*tokenizer)->encode(lines[i], literally), want);
    const std::string text = (*tokenizer)->decode(want, false);
    EXPECT_EQ(streamed(**tokenizer, want, false), text);
    if (std::string(name) == "spm_bpe" && lines[i].find("\ufffd") == std::string::npos) {
      EXPECT_EQ((*tokenizer)->decode(want), answers[i]["decoded"].get<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SentencePieceFile, testing::Values("spm_bpe", "spm_unigram"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(SentencePiece, ReadsControlTokensInTheText) {
  const auto tokenizer = tokenizer_from_sentencepiece(read_data("spm_bpe.model"));
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = (*tokenizer)->encode("</s>", {.add_special = false});
  EXPECT_EQ(*ids, std::vector<TokenId>{2});
  EXPECT_EQ((*tokenizer)->special().bos, 1);
  EXPECT_EQ((*tokenizer)->special().stop, std::vector<TokenId>{2});
  EXPECT_EQ((*tokenizer)->id_of("no such piece"), std::nullopt);
}

TEST(SentencePiece, RefusesWhatIsNoModel) {
  EXPECT_FALSE(tokenizer_from_sentencepiece("").ok());
  EXPECT_FALSE(tokenizer_from_sentencepiece("x").ok());
  EXPECT_FALSE(tokenizer_from_sentencepiece(std::string(1000, '\xff')).ok());
}

TEST(SentencePiece, ConfigDecidesTheFrame) {
  const auto tokenizer = tokenizer_from_sentencepiece(
      read_data("spm_bpe.model"),
      R"({"add_bos_token": false, "add_eos_token": true, "chat_template": "x"})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  EXPECT_EQ((*tokenizer)->encode("")->back(), 2);
  EXPECT_EQ((*tokenizer)->chat_template(), "x");
}

}  // namespace
}  // namespace attune::text
