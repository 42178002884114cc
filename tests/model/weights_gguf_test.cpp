#include "model/weights/gguf.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "gguf_builder.hpp"
#include "model/gguf_config.hpp"
#include "model/weights/gguf_names.hpp"
#include "model/weights/gguf_weights.hpp"
#include "support/scratch_folder.hpp"

namespace attune::model {
namespace {

std::string problem(const std::string& file) {
  const auto parsed = GgufFile::parse(bytes_of(file), "f.gguf");
  return parsed.ok() ? "" : parsed.status().text();
}

TEST(Gguf, EveryMetadataType) {
  const std::string file = GgufBuilder()
                               .value<std::uint8_t>("u8", GgufType::u8, 200)
                               .value<std::int8_t>("i8", GgufType::i8, -3)
                               .value<std::uint16_t>("u16", GgufType::u16, 60000)
                               .value<std::int16_t>("i16", GgufType::i16, -300)
                               .u32("u32", 4000000000u)
                               .value<std::int32_t>("i32", GgufType::i32, -70000)
                               .f32("f32", 0.5f)
                               .value<std::uint8_t>("bool", GgufType::boolean, 1)
                               .text("string", "hello")
                               .value<std::uint64_t>("u64", GgufType::u64, ~std::uint64_t{0})
                               .value<std::int64_t>("i64", GgufType::i64, -1)
                               .value<double>("f64", GgufType::f64, 0.25)
                               .texts("texts", {"a", "", "ccc"})
                               .numbers<std::int32_t>("numbers", GgufType::i32, {-1, 7})
                               .build(2);
  const auto parsed = GgufFile::parse(bytes_of(file), "f");
  ASSERT_TRUE(parsed.ok()) << parsed.status().text();
  const GgufFile& g = *parsed;
  EXPECT_EQ(g.version(), 2u);
  EXPECT_EQ(g.integer("u8"), 200);
  EXPECT_EQ(g.integer("i8"), -3);
  EXPECT_EQ(g.integer("u16"), 60000);
  EXPECT_EQ(g.integer("i16"), -300);
  EXPECT_EQ(g.integer("u32"), 4000000000);
  EXPECT_EQ(g.integer("i32"), -70000);
  EXPECT_EQ(g.number("f32"), 0.5);
  EXPECT_EQ(g.boolean("bool"), true);
  EXPECT_EQ(g.string("string"), "hello");
  EXPECT_EQ(g.integer("u64"), std::nullopt);
  EXPECT_EQ(g.integer("i64"), -1);
  EXPECT_EQ(g.number("f64"), 0.25);
  ASSERT_NE(g.array("texts"), nullptr);
  EXPECT_EQ(g.array("texts")->strings[2], "ccc");
  EXPECT_EQ(g.array("numbers")->number(0), -1);
  EXPECT_EQ(g.string("u8"), std::nullopt);
  EXPECT_EQ(g.find("absent"), nullptr);
}

TEST(Gguf, TensorsAreOutermostFirst) {
  const std::string file = GgufBuilder().tensor("w", {2, 3}, 0, std::string(24, '\1')).build();
  const auto parsed = GgufFile::parse(bytes_of(file), "f");
  ASSERT_TRUE(parsed.ok());
  const WeightView& view = parsed->tensors()[0].view;
  EXPECT_EQ(view.rows(), 2);
  EXPECT_EQ(view.columns(), 3);
  EXPECT_EQ(view.data, bytes_of(file).data() + bytes_of(file).size() - 32);
}

TEST(Gguf, HostileFilesGetOneClearError) {
  EXPECT_NE(problem("").find("not GGUF"), std::string::npos);
  EXPECT_NE(problem("GGML1234").find("not GGUF"), std::string::npos);
  EXPECT_NE(problem(GgufBuilder().build(1)).find("version 1"), std::string::npos);
  EXPECT_NE(problem(GgufBuilder().build(0x03000000)).find("big-endian"), std::string::npos);
  EXPECT_NE(problem(GgufBuilder().u32("k", 1).u32("k", 2).build()).find("appears twice"),
            std::string::npos);
  EXPECT_NE(problem(GgufBuilder().value<std::uint32_t>("k", static_cast<GgufType>(77), 1).build())
                .find("unknown type 77"),
            std::string::npos);
  EXPECT_NE(problem(GgufBuilder().u32("general.alignment", 3).build()).find("power of two"),
            std::string::npos);
  EXPECT_NE(problem(GgufBuilder().tensor("w", {2, 33}, 2, "").build()).find("multiple of 32"),
            std::string::npos);
  EXPECT_NE(problem(GgufBuilder().tensor("w", {1, 1, 1, 1, 1}, 0, "").build()).find("5 dimensions"),
            std::string::npos);
  EXPECT_NE(
      problem(GgufBuilder().tensor("w", {1ull << 40, 1ull << 40}, 0, "").build()).find("too large"),
      std::string::npos);
  EXPECT_NE(problem(GgufBuilder().tensor("w", {1ull << 40, 1ull << 40, 0}, 0, "").build())
                .find("too large"),
            std::string::npos);
  EXPECT_NE(problem(GgufBuilder().tensor("w", {100}, 0, "abcd").build()).find("truncated"),
            std::string::npos);
  EXPECT_NE(problem(GgufBuilder().tensor("w", {1}, 0, "abcd").tensor("w", {1}, 0, "abcd").build())
                .find("appears twice"),
            std::string::npos);
  std::string array = GgufBuilder().numbers<std::uint8_t>("k", GgufType::u8, {1}).build();
  const std::size_t count = array.find(std::string("\x09\0\0\0\0\0\0\0\x01", 9)) + 8;
  array.replace(count, 8, std::string(8, '\x7f'));
  EXPECT_NE(problem(array).find("more than the file holds"), std::string::npos);
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string file = GgufBuilder()
                               .text("general.name", "x")
                               .texts("list", {"one", "two"})
                               .tensor("w", {2, 32}, 8, std::string(68, '\1'))
                               .build();
  ASSERT_EQ(problem(file), "");
  const std::size_t needed = file.size() - (96 - 68);  // the last padding may be missing
  for (std::size_t length = 0; length < needed; ++length)
    ASSERT_NE(problem(file.substr(0, length)), "") << length;
}

TEST(GgufNames, FollowHuggingFace) {
  EXPECT_EQ(hugging_face_name("llama", "token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(hugging_face_name("llama", "output.weight"), "lm_head.weight");
  EXPECT_EQ(hugging_face_name("llama", "output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(hugging_face_name("qwen2", "blk.12.attn_q.bias"),
            "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(hugging_face_name("llama", "blk.0.ffn_norm.weight"),
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(hugging_face_name("gemma3", "blk.0.ffn_norm.weight"),
            "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(hugging_face_name("gemma2", "blk.1.post_ffw_norm.weight"),
            "model.layers.1.post_feedforward_layernorm.weight");
  EXPECT_EQ(hugging_face_name("phi3", "blk.1.ffn_up.weight"),
            "model.layers.1.mlp.gate_up_proj.weight");
  EXPECT_EQ(hugging_face_name("llama", "rope_freqs.weight"), "rope_freqs.weight");
  EXPECT_EQ(hugging_face_name("llama", "blk."), "blk.");
  EXPECT_EQ(expert_name("qwen3moe", "blk.2.ffn_up_exps.weight", 5),
            "model.layers.2.mlp.experts.5.up_proj.weight");
  EXPECT_EQ(expert_name("llama", "blk.2.ffn_down_exps.weight", 0),
            "model.layers.2.block_sparse_moe.experts.0.w2.weight");
  EXPECT_EQ(expert_name("llama", "blk.2.ffn_down.weight", 0), std::nullopt);
}

GgufBuilder small_llama() {
  GgufBuilder b;
  b.text("general.architecture", "llama")
      .u32("llama.block_count", 2)
      .u32("llama.context_length", 64)
      .u32("llama.embedding_length", 48)
      .u32("llama.feed_forward_length", 96)
      .u32("llama.attention.head_count", 3)
      .u32("llama.attention.head_count_kv", 1)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-6f)
      .f32("llama.rope.freq_base", 5000)
      .u32("tokenizer.ggml.eos_token_id", 2);
  b.tensor("token_embd.weight", {10, 48}, 0, std::string(10 * 48 * 4, '\0'));
  return b;
}

TEST(GgufConfig, Llama) {
  const std::string file = small_llama().build();
  const auto parsed = GgufFile::parse(bytes_of(file), "f");
  ASSERT_TRUE(parsed.ok());
  const auto config = config_from_gguf(*parsed, "f");
  ASSERT_TRUE(config.ok()) << config.status().text();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->num_layers(), 2);
  EXPECT_EQ(config->vocab_size, 10);
  EXPECT_TRUE(config->tie_embeddings);
  EXPECT_EQ(config->eos_tokens, std::vector<std::int32_t>{2});
  const AttentionConfig& a = *config->attention_of(1);
  EXPECT_EQ(a.num_qo_heads, 3);
  EXPECT_EQ(a.num_kv_heads, 1);
  EXPECT_EQ(a.head_dim_qk, 16);
  EXPECT_DOUBLE_EQ(a.sm_scale, 0.25);
  EXPECT_TRUE(a.rope.interleaved);
  EXPECT_EQ(a.rope.rotary_dim, 16);
  EXPECT_EQ(a.rope.theta, 5000);
  EXPECT_EQ(config->layers[0].intermediate_size, 96);
}

TEST(GgufConfig, FrequencyFactorsBecomeLongRope) {
  std::string factors;
  for (int i = 0; i < 8; ++i) {
    const float f = static_cast<float>(1 + i);
    factors.append(reinterpret_cast<const char*>(&f), 4);
  }
  const std::string file = small_llama().tensor("rope_freqs.weight", {8}, 0, factors).build();
  const auto parsed = GgufFile::parse(bytes_of(file), "f");
  ASSERT_TRUE(parsed.ok());
  const auto config = config_from_gguf(*parsed, "f");
  ASSERT_TRUE(config.ok()) << config.status().text();
  const RopeConfig& rope = config->attention_of(0)->rope;
  EXPECT_EQ(rope.type, RopeType::longrope);
  EXPECT_EQ(rope.long_factor[7], 8.0);
  EXPECT_EQ(rope.attention_factor, 1.0);
}

TEST(GgufConfig, ProblemsNameTheKey) {
  const auto problem_of = [](const GgufBuilder& builder) {
    const std::string file = builder.build();
    const auto parsed = GgufFile::parse(bytes_of(file), "f");
    return parsed.ok() ? config_from_gguf(*parsed, "f").status().text() : parsed.status().text();
  };
  EXPECT_NE(problem_of(GgufBuilder().text("general.architecture", "wavenet")).find("wavenet"),
            std::string::npos);
  EXPECT_NE(problem_of(GgufBuilder().text("general.architecture", "llama"))
                .find("llama.embedding_length is missing"),
            std::string::npos);
  GgufBuilder zero;
  zero.text("general.architecture", "llama").u32("llama.embedding_length", 0);
  EXPECT_NE(problem_of(zero).find("is 0"), std::string::npos);
}

TEST(GgufWeights, StoreWithExpertsAndUnreadableTypes) {
  const testing_support::ScratchFolder folder;
  const std::string path = folder / "store.gguf";
  std::ofstream(path, std::ios::binary)
      << GgufBuilder()
             .text("general.architecture", "qwen3moe")
             .tensor("blk.0.ffn_gate_exps.weight", {2, 3, 4}, 0, std::string(96, '\2'))
             .tensor("blk.0.attn_q.weight", {1, 256}, 20, std::string(256, '\0'))
             .build();
  auto weights = open_gguf(path);
  ASSERT_TRUE(weights.ok()) << weights.status().text();
  const auto second = (*weights)->find("model.layers.0.mlp.experts.1.gate_proj.weight",
                                       std::array<std::int64_t, 2>{3, 4});
  ASSERT_TRUE(second.ok()) << second.status().text();
  EXPECT_EQ(second->data, (*weights)->head().tensors()[0].view.data + 48);
  EXPECT_NE((*weights)
                ->find("model.layers.0.self_attn.q_proj.weight", {})
                .status()
                .text()
                .find("type number 20"),
            std::string::npos);
}

}  // namespace
}  // namespace attune::model
