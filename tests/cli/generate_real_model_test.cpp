// attune generate on a real model, where tools/fetch_test_models.sh has put it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/model_files.hpp"
#include "support/scratch_folder.hpp"
#include "support/typed_command.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;
using attune::testing_support::ScratchFolder;
using nlohmann::json;
using testing::HasSubstr;
using testing_support::Outcome;

TEST(SmolLm2, GreedyTokensEqualTransformersOnEveryBackend) {
  const std::string model = real_model("demo/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model << ": tools/fetch_test_models.sh .cache";
  for (const json& one : stored("smollm2_tokens.json")) {
    for (const char* backend : {"cpu", "torch_native", "reference"}) {
      // The default answers every prompt; the slower two answer one.
      if (std::string(backend) != "cpu" && (one["chat"] || one["prompt_tokens"].size() > 5))
        continue;
      std::vector<std::string> words{"--prompt", one["prompt"].get<std::string>(),
                                     "--json",   "--weights",
                                     "fp32",     "--attention-backend",
                                     backend,    "--max-new-tokens",
                                     "32",       "--ignore-eos"};
      if (one["chat"].get<bool>()) words.emplace_back("--chat");
      const json out = parsed(generate(model, words));
      EXPECT_EQ(out["prompt_tokens"], one["prompt_tokens"]);
      EXPECT_EQ(out["tokens"], one["tokens"]) << backend << ": " << one["prompt"];
    }
  }
}

TEST(SmolLm2, StaysWithinItsMemory) {
  const std::string model = real_model("demo/SmolLM2-135M-Instruct.Q4_1.gguf");
  const std::string program = std::string(ATTUNE_BINARY_DIR) + "/bin/attune";
  if (!fs::exists(model) || !fs::exists(program)) GTEST_SKIP() << "no model, or no program";
  const ScratchFolder scratch;
  const fs::path out = scratch / "stdout";
  const std::string command = program + " generate --model " + model +
                              " --chat --prompt 'Name three colours.' --json >" + out.string() +
                              " 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream file(out);
  const json result = json::parse(file);
  constexpr std::int64_t kWeightsInBf16 = std::int64_t{134515008} * 2;
  EXPECT_LE(result["peak_rss_bytes"].get<std::int64_t>(),
            kWeightsInBf16 + result["kv_bytes"].get<std::int64_t>() + 100'000'000);
  EXPECT_FALSE(result["text"].get<std::string>().empty());
}

TEST(SmolLm2, FinerKeysThanBf16AreComputedAsSuch) {
  const std::string model = real_model("demo/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model;
  const ScratchFolder scratch;
  const std::string text = scratch / "text.txt";
  std::ofstream(text) << "The quick brown fox jumps over the lazy dog, and the dog does not mind.";
  const auto perplexity = [&](const char* kv) {
    return parsed(generate(model, {"--perplexity", text, "--json", "--kv-cache-dtype", kv}))
        .at("perplexity")
        .get<double>();
  };
  const double exact = perplexity("fp32");
  EXPECT_NE(perplexity("fp16"), exact);  // rounded to bf16 on their way they would be the same
  EXPECT_NEAR(perplexity("fp16"), exact, 2e-2 * exact);
}

TEST(SmolLm2, PromptsOfAFileRunTogetherAndChangeNothing) {
  const std::string model = real_model("demo/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model;
  const std::vector<std::string> prompts{"The capital of France is", "Once upon a time",
                                         "def fibonacci(n):"};
  const ScratchFolder scratch;
  const fs::path path = scratch / "prompts.txt";
  std::ofstream file(path);
  for (const std::string& prompt : prompts) file << prompt << "\n\n";
  file.close();
  const std::vector<std::string> common{"--json", "--batch-invariant", "--max-new-tokens", "8"};
  std::vector<std::string> words{"--prompt-file", path.string(), "--max-batch", "2"};
  words.insert(words.end(), common.begin(), common.end());
  const json together = parsed(generate(model, words));
  ASSERT_EQ(together["results"].size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    std::vector<std::string> one{"--prompt", prompts[i]};
    one.insert(one.end(), common.begin(), common.end());
    EXPECT_EQ(parsed(generate(model, one))["tokens"], together["results"][i]["tokens"]);
  }
}

TEST(SmolLm2, PromptsThatBeginAlikeShareTheirPages) {
  const std::string model = real_model("demo/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model;
  const ScratchFolder scratch;
  const fs::path path = scratch / "prompts.txt";
  std::ofstream file(path);
  std::string beginning;
  for (int i = 0; i < 20; ++i) beginning += "You are a careful assistant who answers briefly. ";
  for (const char* question : {"What is tea?", "Who wrote Hamlet?", "What is tea?"})
    file << beginning << question << "\n";
  file.close();
  std::vector<std::string> words{"--prompt-file",     path.string(),      "--json",
                                 "--batch-invariant", "--max-new-tokens", "8"};
  const json shared = parsed(generate(model, words));
  words.emplace_back("--no-prefix-cache");
  const json plain = parsed(generate(model, words));
  EXPECT_EQ(plain["prefix_cache"]["cached_tokens"], 0);
  EXPECT_GE(shared["prefix_cache"]["cached_tokens"], 2 * 128);
  EXPECT_GE(shared["results"][2]["cached_tokens"], 128);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(shared["results"][i]["tokens"], plain["results"][i]["tokens"]);
}

TEST(SmolLm2, StopStringsEndTheTextBeforeThem) {
  const std::string model = real_model("demo/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model;
  const json out = parsed(generate(model, {"--prompt", "The capital of France is", "--json",
                                           "--weights", "fp32", "--stop", "answer"}));
  EXPECT_EQ(out["text"], " Paris.\n\nThe ");
  EXPECT_EQ(out["finish_reason"], "stop");
}

TEST(SmolLm2, SpeculationChangesNoTokenNorWhereTheTextEnds) {
  const std::string model = real_model("demo/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model;
  const std::string list = "red: 10\nblue: 20\ngreen: 30\n\n";
  const std::vector<std::string> base{"--prompt", "Repeat.\n" + list + list + "red: 10\n", "--json",
                                      "--batch-invariant"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return parsed(generate(model, std::move(more)));
  };
  const std::vector<std::vector<std::string>> endings{
      {"--max-new-tokens", "48", "--ignore-eos"},
      {"--max-new-tokens", "19", "--ignore-eos"},
      {"--max-new-tokens", "48", "--stop", "reen: 3"},
      {"--max-new-tokens", "32", "--temperature", "0.8", "--seed", "7"}};
  for (std::vector<std::string> words : endings) {
    const json plain = run(words);
    words.insert(words.end(), {"--speculate", "ngram"});
    const json out = run(words);
    for (const char* field : {"text", "tokens", "finish_reason"})
      EXPECT_EQ(out[field], plain[field]) << words[1] << " " << words[2];
    EXPECT_GT(out["speculation"]["accepted"], 0);
  }
}

}  // namespace
}  // namespace attune::cli
