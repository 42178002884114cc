#include "model/config_parse.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "model/attention_groups.hpp"

namespace attune::model {
namespace {

ModelConfig load(const std::string& name) {
  const Result<ModelConfig> config =
      load_config(std::string(ATTUNE_SOURCE_DIR) + "/tests/data/configs/" + name + ".json");
  EXPECT_TRUE(config.ok()) << config.status().text();
  return config.ok() ? *config : ModelConfig{};
}

std::string complaint(const std::string& text) {
  const Result<ModelConfig> config = parse_config(text);
  EXPECT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), StatusCode::invalid_argument);
  return config.status().text();
}

std::string llama_with(const std::string& more) {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32, "hidden_size": 64,)"
         R"( "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4)" +
         more + "}";
}

TEST(ConfigParse, KvHeadsAndHeadDimHaveTheFieldsDefaults) {
  const Result<ModelConfig> c = parse_config(llama_with(""));
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->attention[0].num_kv_heads, 4);
  EXPECT_EQ(c->attention[0].head_dim_qk, 16);
  EXPECT_EQ(c->attention[0].rope.theta, 10000.0);
  EXPECT_EQ(c->attention[0].rope.rotary_dim, 16);
}

TEST(ConfigParse, EachComplaintNamesTheKey) {
  EXPECT_NE(complaint("{").find("not JSON"), std::string::npos);
  EXPECT_NE(complaint("[]").find("object"), std::string::npos);
  EXPECT_NE(complaint(R"({"model_type": "xlnet"})").find("unknown model: model_type 'xlnet'"),
            std::string::npos);
  EXPECT_NE(complaint(R"({"model_type": "llama"})").find("hidden_size is missing"),
            std::string::npos);
  EXPECT_NE(complaint(llama_with(R"(, "num_key_value_heads": 3)")).find("do not divide"),
            std::string::npos);
  EXPECT_NE(complaint(llama_with(R"(, "head_dim": "wide")")).find("head_dim"), std::string::npos);
  EXPECT_NE(complaint(llama_with(R"(, "head_dim": -4)")).find("at least 1"), std::string::npos);
  EXPECT_NE(complaint(llama_with(R"(, "rope_scaling": {"type": "spiral"})")).find("spiral"),
            std::string::npos);
  EXPECT_NE(complaint(llama_with(R"(, "torch_dtype": "int3")")).find("int3"), std::string::npos);
  EXPECT_NE(complaint(llama_with(R"(, "rms_norm_eps": -1)")).find("negative"), std::string::npos);
  EXPECT_NE(complaint(llama_with(R"(, "num_attention_heads": 0)")).find("num_attention_heads"),
            std::string::npos);
  EXPECT_NE(
      complaint(
          R"({"model_type": "qwen3", "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2,)"
          R"( "num_attention_heads": 4, "layer_types": ["full_attention"]})")
          .find("layer_types has 1 entries, wanted 2"),
      std::string::npos);
  EXPECT_NE(
      complaint(
          R"({"model_type": "qwen3", "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 1,)"
          R"( "num_attention_heads": 4, "layer_types": ["linear_attention"]})")
          .find("is linear"),
      std::string::npos);
  for (const char* positions : {"0", "-1", "2147483648", "9223372036854775807"})
    EXPECT_NE(complaint(llama_with(R"(, "max_position_embeddings": )" + std::string(positions)))
                  .find(std::string(positions) + ", wanted 1 to 2147483647 positions"),
              std::string::npos);
}

TEST(ConfigParse, AMissingFileSaysSo) {
  const Result<ModelConfig> c = load_config("/nowhere/config.json");
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.status().text().find("/nowhere/config.json"), std::string::npos);
}

TEST(ConfigParse, BareInfinityIsRead) {
  const ModelConfig nemotron = load("nemotron-h-56b");
  EXPECT_TRUE(std::isinf(nemotron.linear[0].time_step_max));
  const ModelConfig mamba = load("tiny/mamba2");
  EXPECT_EQ(mamba.linear[0].time_step_min, 0.0);
  EXPECT_TRUE(std::isinf(mamba.linear[0].time_step_max));
  EXPECT_TRUE(mamba.attention.empty());
}

TEST(ConfigParse, WindowsThatDoNotApplyAreLeftOut) {
  EXPECT_EQ(load("qwen2.5-7b-instruct").attention[0].sliding_window,
            0);  // use_sliding_window false
  EXPECT_EQ(load("phi-3-mini-128k-instruct").attention[0].sliding_window,
            0);  // wider than the context
  EXPECT_EQ(load("mistral-nemo-instruct-2407").attention[0].sliding_window, 0);  // null
  EXPECT_EQ(load("mistral-7b-v0.1").attention[0].sliding_window, 4096);
}

TEST(ConfigParse, RopeDialects) {
  const RopeConfig llama = load("llama-3.1-8b").attention[0].rope;
  EXPECT_EQ(llama.type, RopeType::llama3);
  EXPECT_EQ(llama.factor, 8.0);
  EXPECT_EQ(llama.original_context, 8192);
  const RopeConfig phi = load("phi-3-mini-128k-instruct").attention[0].rope;
  EXPECT_EQ(phi.type, RopeType::longrope);
  EXPECT_EQ(phi.short_factor.size(), 48u);
  EXPECT_EQ(phi.original_context, 4096);
  const RopeConfig oss = load("gpt-oss-20b").attention[0].rope;
  EXPECT_EQ(oss.type, RopeType::yarn);
  EXPECT_FALSE(oss.truncate);
  const ModelConfig gemma = load("gemma-3-27b-it");
  for (const AttentionConfig& a : gemma.attention) {
    const bool sliding = a.kind == AttentionLayerKind::sliding;
    EXPECT_EQ(a.rope.type, sliding ? RopeType::standard : RopeType::linear);
    EXPECT_EQ(a.rope.theta, sliding ? 10000.0 : 1000000.0);
  }
  const ModelConfig gemma4 = load("gemma-4-26b-a4b");
  const RopeConfig full = gemma4.attention_of(5)->rope;
  EXPECT_EQ(full.type, RopeType::proportional);
  EXPECT_EQ(full.rotary_dim, 512);
  EXPECT_EQ(full.turning_pairs, 64);
  const RopeConfig odd = load("tiny/mimo_v2_flash").attention[0].rope;  // int(16 * 0.334) = 5
  EXPECT_EQ(odd.rotary_dim, 6);
  EXPECT_EQ(odd.frequency_dim, 5);
  EXPECT_EQ(full.frequency_dim, 0);
  EXPECT_EQ(load("minimax-m2.7").attention[0].rope.rotary_dim, 64);
  EXPECT_EQ(load("glm-4.5").attention[0].rope.rotary_dim, 64);
}

TEST(ConfigParse, LayersWithoutPositions) {
  const ModelConfig scout = load("llama-4-scout-17b-16e");  // no_rope_layers [] means every fourth
  EXPECT_EQ(scout.attention_of(0)->rope.type, RopeType::llama3);
  EXPECT_EQ(scout.attention_of(3)->rope.type, RopeType::none);
  EXPECT_EQ(scout.attention_of(3)->attention_chunk, 0);
  EXPECT_GT(scout.attention_of(3)->temperature_scale, 0.0);
  EXPECT_EQ(load("tiny/smollm3").attention_of(3)->rope.type, RopeType::none);
  EXPECT_EQ(load("tiny/exaone4").attention_of(3)->rope.type, RopeType::none);
  EXPECT_EQ(load("tiny/cohere2").attention_of(3)->rope.type, RopeType::none);
  EXPECT_EQ(load("kimi-linear-48b-a3b").attention[0].rope.type, RopeType::none);
}

TEST(ConfigParse, YarnTemperatureEntersTheScale) {
  const double m = 0.1 * std::log(40.0) + 1.0;
  EXPECT_NEAR(load("deepseek-v3").attention[0].sm_scale, m * m / std::sqrt(192.0), 1e-12);
}

TEST(ConfigParse, MlaIsAbsorbedInItsSpec) {
  const ModelConfig c = load("deepseek-v2-lite");
  EXPECT_EQ(c.attention[0].head_dim_qk, 192);
  EXPECT_EQ(c.attention[0].q_lora_rank, 0);
  const auto groups = attention_groups(c, {});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].spec.variant, Variant::mla);
  EXPECT_EQ(groups[0].spec.head_dim_qk, 576);
  EXPECT_EQ(groups[0].spec.head_dim_vo, 512);
  EXPECT_EQ(groups[0].spec.num_kv_heads, 1);
}

TEST(ConfigParse, SharedIndexersOfGlm52) {
  const ModelConfig c = load("glm-5.2");
  EXPECT_TRUE(c.layers[2].owns_indexer);
  EXPECT_FALSE(c.layers[3].owns_indexer);
  EXPECT_TRUE(c.attention[0].indexer.rope_interleaved);
  EXPECT_FALSE(load("deepseek-v3.2").attention[0].indexer.rope_interleaved);
}

Result<ModelConfig> with_dual_chunks(const std::string& section) {
  std::string text = llama_with(
      R"(, "max_position_embeddings": 1010000, "dual_chunk_attention_config": {)" + section + "}");
  text.replace(text.find("\"llama\""), 7, "\"qwen2\"");
  return parse_config(text);
}

TEST(ConfigParse, DualChunkIsAConfigKey) {
  const Result<ModelConfig> c = with_dual_chunks(
      R"("chunk_size": 262144, "local_size": 8192, "original_max_position_embeddings": 262144)");
  ASSERT_TRUE(c.ok()) << c.status().text();
  const AttentionSpec spec = attention_groups(*c, {})[0].spec;
  EXPECT_EQ(spec.variant, Variant::dual_chunk);
  EXPECT_EQ(spec.dual_chunk_len, 253952);
  EXPECT_EQ(spec.attention_chunk, 0);
  EXPECT_EQ(c->attention[0].dual_chunk.original_context, 262144);
}

TEST(ConfigParse, DualChunksThatHoldNothingAreRefused) {
  for (const char* section :
       {R"("local_size": 8192)", R"("chunk_size": 8192, "local_size": 8192)",
        R"("chunk_size": 8192, "local_size": -1)", R"("chunk_size": 2147483648)"}) {
    const Result<ModelConfig> c = with_dual_chunks(section);
    ASSERT_FALSE(c.ok()) << section;
    EXPECT_NE(c.status().text().find("local_size < chunk_size"), std::string::npos)
        << c.status().text();
  }
}

TEST(ConfigParse, ComputeIsFp32OnACpuAndHalfWhereKernelsAre) {
  const ModelConfig c = load("whisper-small");
  EXPECT_EQ(auto_dtypes(c, DeviceInfo{}).compute, DType::f32);
  EXPECT_EQ(auto_dtypes(c, DeviceInfo{}).kv, DType::bf16);
  DeviceInfo gpu;
  gpu.kind = DeviceKind::cuda;
  EXPECT_EQ(auto_dtypes(c, gpu).compute, DType::bf16);
}

/// Hostile files: bytes and values of real ones changed. Whatever comes out, nothing may crash.
TEST(ConfigParse, MutationsAreReadOrRefused) {
  std::mt19937 random(7);
  const auto folder = std::filesystem::path(ATTUNE_SOURCE_DIR) / "tests/data/configs";
  constexpr std::string_view kPieces[] = {
      "-1", "0",     "1e999", "9223372036854775808", "16777216", "null", "{}",
      "[]", "\"x\"", "NaN",   "-Infinity",           "0.5",      "true"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream stream(entry.path());
    std::ostringstream bytes;
    bytes << stream.rdbuf();
    const std::string whole = bytes.str();
    for (int round = 0; round < 40; ++round) {
      std::string text = whole;
      const std::size_t at = random() % text.size();
      const std::size_t colon = text.find(':', at);
      if (round % 4 != 0 && colon != std::string::npos) {  // another value for the next key
        const std::size_t end = text.find_first_of(",}]", colon);
        text.replace(colon + 1, end - colon - 1, kPieces[random() % std::size(kPieces)]);
      } else {
        text[at] = static_cast<char>(random());
      }
      const Result<ModelConfig> config = parse_config(text);
      if (config.ok()) (void)attention_groups(*config, {});
    }
  }
}

TEST(ConfigParse, FalconRunsTwoMixersInOneLayer) {
  const ModelConfig c = load("tiny/falcon_h1");
  EXPECT_GE(c.layers[0].attention, 0);
  EXPECT_GE(c.layers[0].linear, 0);
}

}  // namespace
}  // namespace attune::model
