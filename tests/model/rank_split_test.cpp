#include "model/rank_split.hpp"

#include <gtest/gtest.h>

#include <string>

#include "model/attention_groups.hpp"
#include "model/config_parse.hpp"

namespace attune::model {
namespace {

ModelConfig config_of(const std::string& name) {
  const auto config =
      load_config(std::string(ATTUNE_SOURCE_DIR) + "/tests/data/configs/" + name + ".json");
  EXPECT_TRUE(config.ok()) << config.status().text();
  return *config;
}

std::string refusal(const std::string& name, int ranks) {
  const auto rank = rank_of(config_of(name), ranks);
  EXPECT_FALSE(rank.ok()) << name << " over " << ranks;
  EXPECT_EQ(rank.status().code(), StatusCode::invalid_argument);
  return rank.status().text();
}

TEST(RankSplit, DividesHeadsAndKeepsLatentsWhole) {
  const auto llama = rank_of(config_of("llama-3.1-8b"), 4);
  ASSERT_TRUE(llama.ok()) << llama.status().text();
  EXPECT_EQ(llama->attention[0].num_qo_heads, 8);
  EXPECT_EQ(llama->attention[0].num_kv_heads, 2);
  const auto sixteen = rank_of(config_of("llama-3.1-8b"), 16);
  ASSERT_TRUE(sixteen.ok()) << sixteen.status().text();
  EXPECT_EQ(sixteen->attention[0].num_qo_heads, 2);
  EXPECT_EQ(sixteen->attention[0].num_kv_heads, 1) << "of 8, each kept by two ranks";

  const auto deepseek = rank_of(config_of("deepseek-v3"), 8);
  ASSERT_TRUE(deepseek.ok()) << deepseek.status().text();
  const AttentionSpec mla = attention_groups(*deepseek, {})[0].spec;
  EXPECT_EQ(mla.num_qo_heads, 16);
  EXPECT_EQ(mla.num_kv_heads, 1);
  EXPECT_EQ(mla.head_dim_qk, 576);

  const auto next = rank_of(config_of("qwen3-next-80b-a3b"), 2);
  ASSERT_TRUE(next.ok()) << next.status().text();
  EXPECT_EQ(next->linear[0].num_k_heads, 8);
  EXPECT_EQ(next->linear[0].num_v_heads, 16);
  EXPECT_EQ(next->linear[0].conv_dim, 2 * 8 * 128 + 16 * 128);
}

TEST(RankSplit, RefusesWithTheNumbers) {
  EXPECT_NE(refusal("llama-3.1-8b", 3).find("32 query heads do not divide over 3 ranks"),
            std::string::npos);
  EXPECT_NE(refusal("deepseek-v3", 48).find("128 query heads do not divide over 48 ranks"),
            std::string::npos);
  EXPECT_NE(refusal("qwen2.5-7b-instruct", 14).find("4 KV heads neither divide over 14 ranks"),
            std::string::npos);
  EXPECT_NE(refusal("llama-3.1-8b", 0).find("ranks are 0"), std::string::npos);
  EXPECT_NE(refusal("llama-3.1-8b", -2).find("ranks are -2"), std::string::npos);
}

}  // namespace
}  // namespace attune::model
