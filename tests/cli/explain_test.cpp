// attune explain, backends and tables as typed: exit codes, the contract's JSON, every config on
// every device word.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/scratch_folder.hpp"
#include "support/typed_command.hpp"

namespace attune::cli {
namespace {

using nlohmann::json;

using testing_support::Outcome;
using testing_support::typed;

Outcome run(const std::vector<std::string>& words) {
  return typed({add_backends, add_explain, add_tables}, words);
}

std::string config(const std::string& name) {
  return std::string(ATTUNE_SOURCE_DIR) + "/tests/data/configs/" + name + ".json";
}

TEST(Explain, TheContractsFields) {
  const Outcome o = run({"explain", "--model", config("gpt-oss-20b"), "--device", "cuda:sm90",
                         "--assume-built", "--json"});
  EXPECT_EQ(o.code, kDone) << o.err;
  const json j = json::parse(o.out);
  EXPECT_EQ(j["device"], "cuda:sm90");
  ASSERT_EQ(j["groups"].size(), 4u);  // sliding and full, prefill and decode
  const json& g = j["groups"][0];
  EXPECT_EQ(g["layers"].size(), 12u);
  EXPECT_EQ(g["kind"], "sliding");
  EXPECT_EQ(g["phase"], "prefill");
  EXPECT_EQ(g["backend"], "fa3");
  EXPECT_EQ(g["page_size"], 1);
  EXPECT_EQ(g["kv_layout"], "nhd");
  EXPECT_EQ(g["chosen_by"], "model_rule");
  bool flashinfer_refuses_sinks = false;
  for (const json& c : g["considered"])
    for (const json& r : c["refusals"])
      flashinfer_refuses_sinks |= c["name"] == "flashinfer" && r["rule"] == "sinks" &&
                                  r.contains("wanted") && r.contains("have");
  EXPECT_TRUE(flashinfer_refuses_sinks);
}

TEST(Explain, ExitCodes) {
  const std::string llama = config("llama-3.1-8b");
  EXPECT_EQ(run({"explain", "--model", llama, "--device", "cpu:avx2"}).code, kDone);
  EXPECT_EQ(run({"explain"}).code, kBadInput);
  EXPECT_EQ(run({"explain", "--model", "/nowhere"}).code, kBadInput);
  EXPECT_EQ(run({"explain", "--model", llama, "--device", "tpu"}).code, kBadInput);
  EXPECT_EQ(run({"explain", "--model", llama, "--page-size", "many"}).code, kBadInput);
  EXPECT_EQ(run({"explain", "--model", llama, "--kv-cache-dtype", "int3"}).code, kBadInput);
  EXPECT_EQ(run({"explain", "--model", llama, "--memory-limit", "much"}).code, kBadInput);
  EXPECT_EQ(run({"explain", "--model", llama, "--layer-attention-backend", "0-3"}).code, kBadInput);
  EXPECT_EQ(run({"explain", "--model", llama, "--layer-attention-backend", "0-99=reference"}).code,
            kBadInput);
  const Outcome unknown = run({"explain", "--model", llama, "--attention-backend", "flashinfr"});
  EXPECT_EQ(unknown.code, kBadInput);
  EXPECT_NE(unknown.err.find("flashinfer"), std::string::npos);
  const Outcome refused = run({"explain", "--model", llama, "--device", "cuda:sm100",
                               "--assume-built", "--attention-backend", "trtllm_mla", "--json"});
  EXPECT_EQ(refused.code, kNoBackend);
  EXPECT_TRUE(json::parse(refused.out)["groups"][0]["backend"].is_null());
  EXPECT_NE(refused.err.find("variant"), std::string::npos);
}

TEST(Explain, ARankHasItsShareOfTheHeads) {
  const auto ranked = [](const char* model, const char* ranks) {
    return run({"explain", "--model", config(model), "--device", "hip:gfx942", "--assume-built",
                "--ranks", ranks, "--json"});
  };
  // aiter takes latents of 16 or 128 heads.
  for (const auto& [model, ranks, backend] :
       {std::tuple("deepseek-v3", "8", "aiter"), std::tuple("deepseek-v3", "2", "triton"),
        std::tuple("kimi-k2-instruct", "1", "triton"),
        std::tuple("kimi-k2-instruct", "4", "aiter")}) {
    const json out = json::parse(ranked(model, ranks).out);
    EXPECT_EQ(out["groups"][0]["backend"], backend) << model << " over " << ranks;
    EXPECT_EQ(std::to_string(out["ranks"].get<int>()), ranks);
  }
  const Outcome uneven = ranked("deepseek-v3", "3");
  EXPECT_EQ(uneven.code, kBadInput);
  EXPECT_NE(uneven.err.find("128 query heads do not divide over 3 ranks"), std::string::npos);
}

TEST(Explain, APhasesNameGoesBeforeTheCommonOne) {
  const std::string names[] = {"", "triton", "flashinfer"};
  for (const std::string& common : names)
    for (const std::string& prefill : names)
      for (const std::string& decode : names) {
        std::vector<std::string> words = {"explain",  "--model",   config("llama-3.1-8b"),
                                          "--device", "cuda:sm90", "--assume-built",
                                          "--json"};
        const auto add = [&](const std::string& option, const std::string& name) {
          if (!name.empty()) words.insert(words.end(), {option, name});
        };
        add("--attention-backend", common);
        add("--prefill-attention-backend", prefill);
        add("--decode-attention-backend", decode);
        const Outcome o = run(words);
        ASSERT_EQ(o.code, kDone) << o.err;
        const std::string otherwise = common.empty() ? "fa3" : common;
        const json groups = json::parse(o.out)["groups"];
        ASSERT_EQ(groups.size(), 2u);
        EXPECT_EQ(groups[0]["backend"], prefill.empty() ? otherwise : prefill) << o.out;
        EXPECT_EQ(groups[1]["backend"], decode.empty() ? otherwise : decode) << o.out;
      }
}

TEST(Explain, DeprecatedNamesWarn) {
  const Outcome o = run({"explain", "--model", config("deepseek-v4-flash"), "--device", "cuda:sm90",
                         "--assume-built", "--attention-backend", "compressed"});
  EXPECT_EQ(o.code, kDone) << o.err;
  EXPECT_NE(o.err.find("deprecated name of dsv4"), std::string::npos);
}

TEST(Explain, MemoryCountsCacheAndStates) {
  const Outcome o = run({"explain", "--model", config("llama-3.1-8b"), "--device", "cpu:avx2",
                         "--memory-limit", "16GiB", "--json"});
  const json m = json::parse(o.out)["memory"];
  EXPECT_EQ(m["bytes_per_token"], 2 * 8 * 128 * 2 * 32);
  EXPECT_EQ(m["longest_request_tokens"], 131072);  // 16 GiB = 2^34 = 2^17 tokens of 2^17 bytes
  EXPECT_EQ(m["requests_at_context"], 1);
  const json hybrid =
      json::parse(run({"explain", "--model", config("qwen3-next-80b-a3b"), "--device", "cuda:sm90",
                       "--assume-built", "--memory", "--json"})
                      .out)["memory"];
  // 36 layers: 32 x 128 x 128 fp32 of state, 3 x 8192 bf16 of convolution
  EXPECT_EQ(hybrid["groups"][0]["state_bytes_per_request"],
            36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2));
  const json window = json::parse(run({"explain", "--model", config("mistral-7b-v0.1"), "--device",
                                       "cpu:avx2", "--memory", "--json"})
                                      .out)["memory"];
  EXPECT_EQ(window["groups"][0]["bounded_tokens"], 4096);
}

TEST(Explain, ADraftWorkerHasTheLayersThatWereNamed) {
  const auto worker = [](const char* layers) {
    return run({"explain", "--model", config("qwen3-next-80b-a3b"), "--device", "cuda:sm90",
                "--draft-worker", layers, "--memory", "--json"});
  };
  const json softmax = json::parse(worker("full").out);
  ASSERT_EQ(softmax["groups"].size(), 2U);  // one group, two phases
  EXPECT_EQ(softmax["groups"][0]["kind"], "full");
  EXPECT_EQ(softmax["memory"]["groups"].size(), 1U) << "no states";
  const json both = json::parse(worker("linear,full").out);
  EXPECT_EQ(both["groups"][0]["kind"], "gdn");
  EXPECT_EQ(both["memory"]["groups"][0]["state_bytes_per_request"],
            32 * 128 * 128 * 4 + 3 * 8192 * 2);
  for (const char* wrong : {"", "softmax"}) EXPECT_EQ(worker(wrong).code, kBadInput) << wrong;
}

TEST(Explain, EveryConfigOnEveryDeviceWord) {
  const std::filesystem::path folder =
      std::filesystem::path(ATTUNE_SOURCE_DIR) / "tests/data/configs";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    for (const char* device :
         {"cpu:scalar", "cpu:avx2", "cpu:avx512", "cpu:amx", "cuda:sm80", "cuda:sm90", "cuda:sm100",
          "cuda:sm120", "hip:gfx942", "xpu", "npu"}) {
      SCOPED_TRACE(entry.path().string() + " on " + device);
      const Outcome o = run({"explain", "--model", entry.path().string(), "--device", device,
                             "--assume-built", "--json"});
      ASSERT_TRUE(o.code == kDone || o.code == kNoBackend) << o.err;
      const json j = json::parse(o.out);
      ASSERT_FALSE(j["groups"].empty());
      EXPECT_EQ(j.contains("error"), o.code == kNoBackend);
    }
  }
}

TEST(Backends, EveryNameWithItsFields) {
  const Outcome o = run({"backends", "--device", "cpu:avx2", "--json"});
  EXPECT_EQ(o.code, kDone);
  const json j = json::parse(o.out);
  EXPECT_GE(j["backends"].size(), 29u);
  for (const json& b : j["backends"]) {
    for (const char* field :
         {"name", "aliases", "status", "reasons", "summary", "needs", "capabilities"})
      EXPECT_TRUE(b.contains(field)) << b["name"] << " " << field;
    const std::string status = b["status"];
    EXPECT_TRUE(status == "usable" || status == "unusable" || status == "not_built");
    EXPECT_EQ(status == "usable", b["reasons"].empty());
  }
}

TEST(Tables, EveryFormat) {
  EXPECT_EQ(run({"tables", "--format", "md"}).code, kDone);
  EXPECT_TRUE(json::parse(run({"tables", "--format", "json"}).out).is_array());
  EXPECT_NE(run({"tables", "--format", "help"}).out.find("flashinfer"), std::string::npos);
  EXPECT_EQ(run({"tables", "--format", "xml"}).code, kBadInput);
}

}  // namespace
}  // namespace attune::cli
