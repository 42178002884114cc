// Behaviour of tokenizers that no oracle covers: broken bytes, streams, errors, limits.
#include "text/tokenizer.hpp"

#include <gtest/gtest.h>

#include "answers.hpp"
#include "files.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

TokenizerPtr load(const std::string& name) {
  auto tokenizer = tokenizer_from_json(read_data(name + ".tokenizer.json"));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  return std::move(*tokenizer);
}

TEST(Tokenizer, BrokenBytesAreReadAsReplacements) {
  const auto tokenizer = load("smollm");
  for (const std::string& text :
       std::vector<std::string>{"\xff", "a\xE4\xB8", "\xED\xA0\x80 x", "ok\xC0\xAF"}) {
    EXPECT_EQ(*tokenizer->encode(text), *tokenizer->encode(to_valid_utf8(text)));
    EXPECT_EQ(tokenizer->decode(*tokenizer->encode(text)), to_valid_utf8(text));
  }
}

TEST(Tokenizer, ByteLevelRoundTripsEveryText) {
  const auto tokenizer = load("qwen2");
  for (const std::string& line : corpus()) {
    const auto ids = *tokenizer->encode(line, {.add_special = false, .parse_special = false});
    EXPECT_EQ(*tokenizer->encode(tokenizer->decode(ids, false), {.parse_special = false}), ids);
  }
}

TEST(StreamDecoder, NeverShowsHalfACharacter) {
  for (const char* name : {"smollm", "llama", "word_piece", "unigram", "suffix_bpe"}) {
    const auto tokenizer = load(name);
    for (const std::string& line : corpus()) {
      StreamDecoder stream(*tokenizer);
      const auto ids = *tokenizer->encode(line);
      for (const TokenId id : ids) {
        ASSERT_TRUE(is_valid_utf8(stream.push(id))) << name << ": " << line;
      }
      ASSERT_TRUE(is_valid_utf8(stream.finish()));
    }
  }
}

TEST(StreamDecoder, WaitsForTheRestOfACharacterAndNoLonger) {
  const auto tokenizer = load("llama");
  const auto byte = [&](const char* piece) { return *tokenizer->id_of(piece); };
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push(byte("<0xF0>")), "");
  EXPECT_EQ(stream.push(byte("<0x9F>")), "");
  EXPECT_EQ(stream.push(byte("<0x98>")), "");
  EXPECT_EQ(stream.push(byte("<0x80>")), "\U0001F600");
  EXPECT_EQ(stream.push(byte("<0xE4>")), "");
  EXPECT_EQ(stream.push(*tokenizer->id_of("\u2581")), "\uFFFD ");
  EXPECT_EQ(stream.push(byte("<0xE4>")), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(StreamDecoder, ALongStreamOfHalvesStaysCheap) {
  // Every token but the first ends inside a character.
  const auto tokenizer = load("llama");
  const TokenId lead = *tokenizer->id_of("<0xC3>"), rest = *tokenizer->id_of("<0xA9>");
  StreamDecoder stream(*tokenizer);
  std::string text = stream.push(lead);
  for (int i = 0; i < 20'000; ++i) {
    text += stream.push(rest);
    text += stream.push(lead);
  }
  EXPECT_EQ(text.size(), 40'000u);
}

TEST(StreamDecoder, SkipsOrShowsControlTokens) {
  const auto tokenizer = load("smollm");
  StreamDecoder skipping(*tokenizer), showing(*tokenizer, false);
  EXPECT_EQ(skipping.push(2), "");
  EXPECT_EQ(showing.push(2), "<|im_end|>");
  EXPECT_EQ(skipping.push(1 << 20), "");
}

TEST(Tokenizer, LookUps) {
  const auto tokenizer = load("smollm");
  EXPECT_EQ(tokenizer->id_of("<|im_start|>"), 1);
  EXPECT_EQ(tokenizer->piece_of(1), "<|im_start|>");
  EXPECT_EQ(tokenizer->id_of("no such piece"), std::nullopt);
  EXPECT_EQ(tokenizer->piece_of(-1), std::nullopt);
  EXPECT_EQ(tokenizer->piece_of(900), std::nullopt);
  EXPECT_EQ(tokenizer->vocab_size(), 900);
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{-5, 900, 1 << 30}), "");
}

TEST(TokenizerConfig, RolesAndTemplate) {
  const auto tokenizer = tokenizer_from_json(
      read_data("smollm.tokenizer.json"),
      R"({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "pad_token": null,
          "chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  EXPECT_EQ((*tokenizer)->special().bos, 1);
  EXPECT_EQ((*tokenizer)->special().eos, 2);
  EXPECT_EQ((*tokenizer)->special().pad, std::nullopt);
  EXPECT_EQ((*tokenizer)->special().stop, (std::vector<TokenId>{0, 2}));
  EXPECT_EQ((*tokenizer)->chat_template(), "d");
  EXPECT_FALSE(tokenizer_from_json(read_data("smollm.tokenizer.json"), "{").ok());
  EXPECT_FALSE(tokenizer_from_json(read_data("smollm.tokenizer.json"), R"({"bos_token": 1})").ok());
}

std::string error_of(std::string_view json) {
  const auto tokenizer = tokenizer_from_json(json);
  return tokenizer.ok() ? "" : tokenizer.status().text();
}

TEST(TokenizerJson, SaysWhatIsWrong) {
  const auto expect = [](std::string_view json, std::string_view part) {
    EXPECT_NE(error_of(json).find(part), std::string::npos) << json << "\n" << error_of(json);
  };
  expect("", "tokenizer.json is not JSON");
  expect("{", "tokenizer.json is not JSON");
  expect("[]", "no \"model\"");
  expect("{}", "no \"model\"");
  expect(R"({"model": 5})", "tokenizer.json.model");
  expect(R"({"model": {"type": "Foo"}})", "\"Foo\" is not BPE");
  expect(R"({"model": {"type": "BPE"}})", "model.merges: want an array");
  expect(R"({"model": {"type": "BPE", "merges": []}})", "model.vocab: want an object");
  expect(R"({"model": {"type": "BPE", "merges": [], "vocab": {"a": -1}}})", "has the id -1");
  expect(R"({"model": {"type": "BPE", "merges": [], "vocab": {"a": 99999999999}}})", "has the id");
  expect(R"({"model": {"type": "BPE", "merges": ["a"], "vocab": {"a": 0}}})", "want two pieces");
  expect(R"({"model": {"type": "BPE", "merges": ["a b"], "vocab": {"a": 0}}})", "merge 0 joins");
  expect(R"({"model": {"type": "BPE", "merges": [], "vocab": {}, "dropout": 0.5}})", "dropout");
  expect(R"({"model": {"type": "Unigram", "vocab": []}})", "vocabulary is empty");
  expect(R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 7}})", "unk_id 7");
  expect(R"({"model": {"type": "Unigram", "vocab": [["a"]]}})", "a piece and its score");
  expect(R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})",
         "[UNK] is not in the vocabulary");
  const auto with = [](std::string_view field) {
    return R"({"model": {"type": "BPE", "merges": [], "vocab": {"a": 0}}, )" + std::string(field) +
           "}";
  };
  expect(with(R"("normalizer": {"type": "Foo"})"), "normalizer \"Foo\"");
  expect(with(R"("pre_tokenizer": {"type": "Foo"})"), "pre-tokenizer \"Foo\"");
  expect(with(R"("decoder": {"type": "CTC"})"), "decoder \"CTC\"");
  expect(with(R"("post_processor": {"type": "Foo"})"), "post-processor \"Foo\"");
  expect(with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}})"),
         "does not compile");
  expect(with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "X"})"),
         "split behaviour");
  expect(with(R"("pre_tokenizer": {"type": "FixedLength", "length": 0})"), "an integer from 1");
  expect(with(R"("added_tokens": [{"id": 1}])"), "content: want a string");
  expect(with(R"("added_tokens": [{"id": -1, "content": "x"}])"), "an integer from 0");
  expect(with(R"("added_tokens": 7)"), "added_tokens: want an array");
}

TEST(TokenizerJson, HostileNestingIsRefused) {
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 1000; ++i)
    nested = R"({"type": "Sequence", "normalizers": [)" + nested + "]}";
  EXPECT_NE(
      error_of(R"({"model": {"type": "BPE", "merges": [], "vocab": {"a": 0}}, "normalizer": )" +
               nested + "}")
          .find("fewer nested sequences"),
      std::string::npos);
  EXPECT_NE(error_of(std::string(200'000, '[')), "");
}

TEST(Tokenizer, HostileTextIsQuick) {
  for (const char* name : {"smollm", "llama", "unigram", "word_piece", "qwen2", "added_tokens"}) {
    const auto tokenizer = load(name);
    for (const char* unit : {"a", " ", "\n", "!", "1", "\u4e00", "a\u0301\u0316", "<|im_", "'s"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      EXPECT_TRUE(tokenizer->encode(text).ok()) << name << " " << unit;
    }
  }
}

}  // namespace
}  // namespace attune::text
