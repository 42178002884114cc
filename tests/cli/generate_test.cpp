// attune generate and attune embed as typed: answers, exit codes, one line for each mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command.hpp"
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

Outcome attune(std::vector<std::string> words) {
  return typed({add_generate, add_embed}, std::move(words));
}

std::string golden(const std::string& family) {
  return std::string(ATTUNE_SOURCE_DIR) + "/tests/golden/models/" + family;
}

Outcome generate(const std::string& model, std::vector<std::string> words) {
  words.insert(words.begin(), {"generate", "--model", model});
  return attune(std::move(words));
}

json parsed(const Outcome& o) {
  EXPECT_EQ(o.code, kDone) << o.err;
  return json::parse(o.out, nullptr, false);
}

json stored(const std::string& name) {
  std::ifstream file(std::string(ATTUNE_SOURCE_DIR) + "/tests/golden/" + name);
  return json::parse(file);
}

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
    EXPECT_EQ(generate(llama, {"--tokens", "1", option, "-1"}).code, kBadInput) << option;
  expect_mistake(generate(llama, {"--tokens", "1", "--stop", ""}), "--stop is empty");
  expect_mistake(generate(llama, {"--tokens", "1", "--stop", "x"}), "no tokenizer");
  expect_mistake(generate(llama, {"--tokens", "1", "--perplexity", llama + "/config.json"}),
                 "does not go with --tokens");
}

TEST(Generate, ADeviceThatIsNotThereRunsNothing) {
  std::vector<std::string> words = {"cuda:sm90", "xpu"};
  if (cpu_device().isa < CpuIsa::amx) words.emplace_back("cpu:amx");
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
  for (const char* tokens : {"100000000000", "9000000000000000000"})
    expect_mistake(
        generate(golden("llama"), {"--tokens", "5", "--page-size", "16", "--pool-tokens", tokens}),
        "at most 2147483647");
  EXPECT_EQ(
      generate(golden("llama"), {"--tokens", "5", "--max-new-tokens", "9223372036854775807"}).code,
      kDone);  // up to the context
}

/// A copy of the tiny llama in a folder of its own, to be spoilt.
class SpoiltModel : public testing::Test {
 protected:
  SpoiltModel() { fs::copy(golden("llama"), folder_); }

  [[nodiscard]] json config() const {
    std::ifstream file(folder_ / "config.json");
    return json::parse(file);
  }
  void write(const json& config) const { std::ofstream(folder_ / "config.json") << config; }
  [[nodiscard]] Outcome run() const {
    return generate(folder_.string(), {"--tokens", "5,6", "--max-new-tokens", "1"});
  }

  ScratchFolder scratch_;
  fs::path folder_ = scratch_ / "model";
};

TEST_F(SpoiltModel, RunsUnspoilt) { EXPECT_EQ(run().code, kDone); }

TEST_F(SpoiltModel, AnUnknownArchitectureIsNamed) {
  json c = config();
  c["architectures"] = {"NoSuchForCausalLM"};
  c["model_type"] = "no_such";
  write(c);
  const Outcome o = run();
  EXPECT_EQ(o.code, kBadInput);
  EXPECT_THAT(o.err, HasSubstr("NoSuchForCausalLM"));
}

TEST_F(SpoiltModel, AMissingTensorIsNamed) {
  json c = config();
  c["num_hidden_layers"] = 3;
  write(c);
  expect_mistake(run(), "model.layers.2.");
}

TEST_F(SpoiltModel, AWrongShapeIsNamed) {
  json c = config();
  c["intermediate_size"] = 96;
  write(c);
  expect_mistake(run(), "model.layers.0.mlp.gate_proj.weight");
}

TEST_F(SpoiltModel, ATruncatedFileIsNamed) {
  fs::resize_file(folder_ / "model.safetensors", 5000);
  expect_mistake(run(), "model.safetensors");
}

TEST_F(SpoiltModel, AMissingFileIsNamed) {
  fs::remove(folder_ / "model.safetensors");
  expect_mistake(run(), "model.safetensors");
  fs::remove(folder_ / "config.json");
  expect_mistake(run(), "config.json");
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

/// Real models, where tools/fetch_test_models.sh has put them.
std::string real_model(const std::string& name) {
  return std::string(ATTUNE_SOURCE_DIR) + "/.cache/" + name;
}

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

TEST(Generate, OnePromptNeedsNoPrefixCache) {
  const json out = parsed(generate(golden("llama"), {"--tokens", "5,6,7", "--json"}));
  EXPECT_EQ(out["prefix_cache"]["enabled"], false);
  EXPECT_EQ(out["cached_tokens"], 0);
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

TEST(MiniLm, EmbeddingsEqualThePublishedPipelines) {
  const std::string model = real_model("minilm");
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model << ": tools/fetch_test_models.sh .cache";
  std::vector<std::string> words{"embed", "--model", model, "--json"};
  const json expected = stored("minilm_embeddings.json");
  for (const json& one : expected) {
    words.emplace_back("--text");
    words.push_back(one["text"].get<std::string>());
  }
  for (const char* backend : {"cpu", "torch_native", "reference"}) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--attention-backend", backend});
    const json out = parsed(attune(more));
    ASSERT_EQ(out["embeddings"].size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(out["embeddings"][i]["tokens"], expected[i]["tokens"]);
      const auto have = out["embeddings"][i]["embedding"].get<std::vector<double>>();
      const auto want = expected[i]["embedding"].get<std::vector<double>>();
      ASSERT_EQ(have.size(), want.size());
      double worst = 0;
      for (std::size_t d = 0; d < want.size(); ++d)
        worst = std::max(worst, std::fabs(have[d] - want[d]));
      EXPECT_LE(worst, 1e-4) << backend << ": " << expected[i]["text"];
    }
  }
}

TEST(Embed, EachMistakeIsOneLine) {
  expect_mistake(attune({"embed", "--model", golden("llama"), "--text", "a"}), "tokenizer.json");
  expect_mistake(attune({"embed", "--model", golden("llama")}), "--text");
}

}  // namespace
}  // namespace attune::cli
