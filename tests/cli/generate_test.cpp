// attune generate as typed, on tiny models: answers, exit codes, one line for each mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/generate_options.hpp"
#include "cli/model_files.hpp"
#include "support/scratch_folder.hpp"
#include "support/typed_command.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;
using attune::testing_support::ScratchFolder;
using nlohmann::json;
using testing::HasSubstr;
using testing_support::expect_mistake;
using testing_support::Outcome;
using testing_support::typed;

Outcome attune(std::vector<std::string> words) { return typed({add_generate}, std::move(words)); }

TEST(Generate, AWeightsCacheIsMadeThenReadAndChangesNothing) {
  // These weights are bf16 on file: nothing is converted in the first form, everything in the
  // other.
  for (const char* form : {"bf16", "fp32"}) {
    const ScratchFolder folder;
    const std::vector<std::string> words{"--tokens", "1,2,3", "--weights", form, "--json"};
    std::vector<std::string> keeping = words;
    keeping.insert(keeping.end(), {"--weights-cache", (folder / "weights").string()});
    const json plain = parsed(generate(golden("llama"), words));
    const json made = parsed(generate(golden("llama"), keeping));
    const json read = parsed(generate(golden("llama"), keeping));
    EXPECT_FALSE(plain.contains("weights_cache"));
    EXPECT_EQ(made["weights_cache"], "made");
    EXPECT_EQ(read["weights_cache"], "read");
    EXPECT_EQ(made["tokens"], plain["tokens"]);
    EXPECT_EQ(read["tokens"], plain["tokens"]);
  }
}

TEST(Generate, AnswersInJsonWithTheContractsFields) {
  const json out =
      parsed(generate(golden("llama"), {"--tokens", "5,6,7", "--json", "--weights", "fp32",
                                        "--max-new-tokens", "5", "--ignore-eos"}));
  EXPECT_EQ(out["prompt_tokens"], json({5, 6, 7}));
  EXPECT_EQ(out["tokens"].size(), 5u);
  EXPECT_EQ(out["finish_reason"], "length");
  ASSERT_EQ(out["backends"].size(), 2u);
  EXPECT_EQ(out["backends"][0]["layers"], json({0, 1}));
  EXPECT_FALSE(out["backends"][0]["why"].get<std::string>().empty());
  for (const char* field : {"text", "prefill_tokens_per_s", "decode_tokens_per_s", "load_s",
                            "peak_rss_bytes", "fallbacks"})
    EXPECT_TRUE(out.contains(field)) << field;
}

TEST(Generate, ChunksBackendsAndPagesChangeNoGreedyToken) {
  const std::vector<std::string> base{
      "--tokens", "9,8,7,6,5,4,3,9,8,7,6,5,44,3", "--json", "--weights", "fp32", "--max-new-tokens",
      "20"};
  const auto tokens = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return parsed(generate(golden("gemma3_text"), std::move(more)))["tokens"];
  };
  const json expected = tokens({"--attention-backend", "reference"});
  EXPECT_EQ(tokens({"--attention-backend", "cpu", "--chunk-size", "3"}), expected);
  EXPECT_EQ(tokens({"--attention-backend", "torch_native", "--page-size", "1"}), expected);
  EXPECT_EQ(tokens({"--prefill-attention-backend", "reference", "--page-size", "64"}), expected);
  EXPECT_EQ(tokens({"--layer-attention-backend", "0,2=reference"}), expected);
  EXPECT_EQ(tokens({"--threads", "1", "--force-isa", "scalar"}), expected);
}

TEST(Generate, SpeculationSaysWhatItDidAndChangesNoToken) {
  const std::vector<std::string> base{
      "--tokens",     "9,8,7,6,5,9,8,7,6,5,9,8,7", "--json", "--weights", "fp32",
      "--ignore-eos", "--max-new-tokens",          "40"};
  for (const char* family : {"llama", "qwen3_next"}) {
    const auto run = [&](std::vector<std::string> more) {
      more.insert(more.begin(), base.begin(), base.end());
      return parsed(generate(golden(family), std::move(more)));
    };
    const json plain = run({});
    EXPECT_FALSE(plain.contains("speculation"));
    for (const std::vector<std::string>& options : {std::vector<std::string>{},
                                                    {"--draft-tokens", "3", "--ngram-min", "1"},
                                                    {"--verify-drafts", "together"},
                                                    {"--temperature", "0"}}) {
      std::vector<std::string> words{"--speculate", "ngram"};
      words.insert(words.end(), options.begin(), options.end());
      const json out = run(words);
      EXPECT_EQ(out["tokens"], plain["tokens"]) << family;
      ASSERT_TRUE(out.contains("speculation"));
      EXPECT_LE(out["speculation"]["accepted"], out["speculation"]["drafts"]);
      EXPECT_GE(out["speculation"]["tokens_per_step"], 1.0);
    }
  }
  const std::string llama = golden("llama");
  expect_mistake(generate(llama, {"--tokens", "5", "--draft-tokens", "3"}), "needs --speculate");
  expect_mistake(generate(llama, {"--tokens", "5", "--verify-drafts", "exact"}),
                 "needs --speculate");
  expect_mistake(generate(llama, {"--tokens", "5", "--speculate", "ngram", "--draft-tokens", "0"}),
                 "--draft-tokens is 0");
  expect_mistake(generate(llama, {"--tokens", "5", "--speculate", "ngram", "--ngram-min", "0"}),
                 "n-grams");
  expect_mistake(generate(llama, {"--tokens", "5", "--speculate", "ngram", "--batch-invariant",
                                  "--verify-drafts", "together"}),
                 "--batch-invariant");
  const Outcome refused = generate(
      llama, {"--tokens", "5", "--speculate", "ngram", "--attention-backend", "torch_native"});
  EXPECT_EQ(refused.code, kNoBackend);
  EXPECT_THAT(refused.err, HasSubstr("target_verify"));
}

TEST(Generate, AnExplicitBackendIsNeverReplaced) {
  const Outcome o =
      generate(golden("gpt_oss"), {"--tokens", "5", "--attention-backend", "torch_native"});
  EXPECT_EQ(o.code, kNoBackend);
  EXPECT_THAT(o.err, HasSubstr("sinks"));
  EXPECT_EQ(o.out, "");
}

TEST(Generate, EachMistakeIsOneLine) {
  const std::string llama = golden("llama");
  expect_mistake(generate(llama, {"--prompt", ""}), "--prompt is empty");
  expect_mistake(generate(llama, {}), "exactly one of");
  expect_mistake(generate(llama, {"--prompt", "a", "--tokens", "1"}), "have 2");
  expect_mistake(generate(llama, {"--prompt", "a"}), "tokenizer.json");
  expect_mistake(generate(llama, {"--tokens", "1,x"}), "'x' is not a token id");
  expect_mistake(generate(llama, {"--tokens", ""}), "--tokens is empty");
  expect_mistake(generate(llama, {"--tokens", "96"}), "token 96");
  expect_mistake(generate(llama, {"--tokens", "1", "--chat"}), "--chat needs text");
  expect_mistake(generate(llama, {"--tokens", "1", "--page-size", "0"}), "--page-size is '0'");
  expect_mistake(generate(llama, {"--tokens", "1", "--temperature", "-1"}), "temperature");
  expect_mistake(generate(llama, {"--tokens", "1", "--kv-cache-dtype", "fp3"}), "'fp3'");
  expect_mistake(generate(llama, {"--tokens", "1", "--weights", "fp3"}), "'fp3'");
  expect_mistake(generate(llama, {"--tokens", "1", "--attention-backend", "cpuu"}), "cpuu");
  expect_mistake(generate(llama, {"--tokens", "1", "--layer-attention-backend", "cpu"}),
                 "RANGE=NAME");
  expect_mistake(generate(llama, {"--prompt-file", "/no/such/file"}), "tokenizer.json");
  expect_mistake(generate("/no/such/model", {"--tokens", "1"}), "/no/such/model");
  expect_mistake(attune({"generate", "--tokens", "1"}), "--model");
  expect_mistake(generate(llama + "/config.json", {"--tokens", "1"}), "is no model");
  EXPECT_EQ(generate(llama, {"--tokens", "1", "--threads", "0"}).code, kBadInput);
  for (const char* option : {"--seed", "--pool-tokens", "--max-new-tokens", "--latent-chunk"})
    for (const char* number : {"-1", "1.5", "18446744073709551616"})
      expect_mistake(generate(llama, {"--tokens", "1", option, number}), number);
  expect_mistake(generate(llama, {"--tokens", "1", "--stop", ""}), "--stop is empty");
  expect_mistake(generate(llama, {"--tokens", "1", "--stop", "x"}), "no tokenizer");
  for (const char* option : {"--tokens", "--max-new-tokens", "--top-k", "--draft-tokens"})
    expect_mistake(generate(llama, {option, "1", "--perplexity", llama + "/config.json"}),
                   "excludes");
}

TEST(Generate, APerplexityIsReckonedInStepsOfTheChunkSize) {
  const ScratchFolder scratch;
  const fs::path model = scratch / "model";
  fs::copy(golden("llama"), model);
  std::ofstream(model / "tokenizer.json") << R"({"pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 5, "b": 6}, "unk_token": "<unk>"}})";
  const std::string text = scratch / "text";
  std::ofstream file(text);
  for (int i = 0; i < 150; ++i) file << "a b ";
  file.close();
  const auto scored = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--perplexity", text, "--json"});
    return parsed(generate(model.string(), std::move(more)));
  };
  // The context of 256 tokens is the window: pieces of 256 and 44.
  const json plain = scored({});
  EXPECT_EQ(plain["window"], 256);
  EXPECT_EQ(plain["tokens"], 298);
  EXPECT_EQ(plain["steps"], 2 + 1);
  EXPECT_EQ(scored({"--chunk-size", "64"})["steps"], 4 + 1);
  EXPECT_EQ(scored({"--chunk-size", "4096"})["steps"], 1 + 1);
}

TEST(Generate, PromptsMayComeFromAPipe) {
  const ScratchFolder scratch;
  const std::string pipe = scratch / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "one\ntwo\n"; });
  const Result<std::string> read = read_file(pipe);
  writer.join();
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(*read, "one\ntwo\n");
  EXPECT_THAT(read_file(scratch.path()).status().text(), HasSubstr("is a folder"));
}

TEST(Generate, ADeviceThatIsNotThereRunsNothing) {
  std::vector<std::string> words = {"cuda:sm90", "xpu"};
  if (cpu_device().isa < CpuIsa::amx) words.emplace_back("cpu:amx");
  if (cuda_devices().empty()) words.emplace_back("cuda");
  for (const std::string& word : words) {
    const Outcome o = generate(golden("llama"), {"--tokens", "1", "--device", word});
    EXPECT_EQ(o.code, kNoBackend) << word;
    EXPECT_EQ(o.out, "") << word;
    EXPECT_THAT(o.err, HasSubstr(word));
  }
  EXPECT_EQ(generate(golden("llama"), {"--tokens", "1", "--device", "cpu:scalar"}).code, kDone);
}

TEST(Generate, NamesAPromptOrPoolThatDoesNotFit) {
  std::string long_prompt = "5";
  for (int i = 0; i < 256; ++i) long_prompt += ",6";
  expect_mistake(generate(golden("llama"), {"--tokens", long_prompt}), "257 tokens");
  expect_mistake(generate(golden("llama"),
                          {"--tokens", "5,6,7,8,9", "--page-size", "4", "--pool-tokens", "4"}),
                 "2 pages of 4 tokens");
  const Outcome outgrown = generate(
      golden("llama"), {"--tokens", "5,6,7,8,9", "--page-size", "4", "--pool-tokens", "8"});
  expect_mistake(outgrown, "--pool-tokens");
  for (const char* tokens : {"100000000000", "9223372036854775807"})
    expect_mistake(
        generate(golden("llama"), {"--tokens", "5", "--page-size", "16", "--pool-tokens", tokens}),
        "at most 2147483647");
  EXPECT_EQ(
      generate(golden("llama"), {"--tokens", "5", "--max-new-tokens", "9223372036854775807"}).code,
      kDone);  // up to the context
}

TEST(Generate, OnePromptNeedsNoPrefixCache) {
  const json out = parsed(generate(golden("llama"), {"--tokens", "5,6,7", "--json"}));
  EXPECT_EQ(out["prefix_cache"]["enabled"], false);
  EXPECT_EQ(out["cached_tokens"], 0);
}

TEST(Generate, AClosedPipeEndsTheOutputQuietly) {
  const std::string program = std::string(ATTUNE_BINARY_DIR) + "/bin/attune";
  if (!fs::exists(program)) GTEST_SKIP() << "the program is not built";
  const ScratchFolder scratch;
  const fs::path err = scratch / "stderr";
  const std::string command = "bash -c 'set -o pipefail; " + program + " generate --model " +
                              golden("llama") + " --tokens 5 --max-new-tokens 200 --json 2>" +
                              err.string() + " | true'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ifstream file(err);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), "");
}

}  // namespace
}  // namespace attune::cli
