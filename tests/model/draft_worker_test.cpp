#include "model/draft_worker.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/attention_groups.hpp"
#include "model/config_parse.hpp"

namespace attune::model {
namespace {

ModelConfig config_of(const std::string& name) {
  auto config = load_config(std::string(ATTUNE_SOURCE_DIR) + "/tests/golden/models/" + name);
  EXPECT_TRUE(config.ok()) << config.status().text();
  return *config;
}

std::vector<std::string> kinds_of(const ModelConfig& config) {
  std::vector<std::string> kinds;
  for (const AttentionGroup& group : attention_groups(config, {})) kinds.push_back(group.kind);
  return kinds;
}

TEST(DraftWorker, HasTheLayersThatItsWordsName) {
  for (const char* name : {"qwen3_next", "kimi_linear", "nemotron_h", "falcon_h1"}) {
    const ModelConfig target = config_of(name);
    ASSERT_FALSE(target.linear.empty()) << name;
    const auto full = draft_worker(target, *parse_draft_layers("full"));
    ASSERT_TRUE(full.ok()) << full.status().text();
    EXPECT_EQ(full->num_layers(), 1);
    EXPECT_TRUE(full->linear.empty()) << "no state pool for " << name;
    const std::string softmax =
        target.attention.front().kind == AttentionLayerKind::mla ? "mla" : "full";
    EXPECT_EQ(kinds_of(*full), std::vector<std::string>{softmax}) << name;

    const auto both = draft_worker(target, *parse_draft_layers("full,linear,full"));
    ASSERT_TRUE(both.ok()) << both.status().text();
    const auto groups = attention_groups(*both, {});
    ASSERT_EQ(groups.size(), 2U) << name;
    EXPECT_EQ(groups[0].layers, (std::vector<int>{0, 2}));
    EXPECT_EQ(groups[1].layers, std::vector<int>{1});
    EXPECT_TRUE(is_linear(groups[1].spec.variant));
  }
}

TEST(DraftWorker, LayersAreTheTargetsOwnKind) {
  const ModelConfig target = config_of("qwen3_next");
  const auto worker = draft_worker(target, *parse_draft_layers("linear"));
  ASSERT_TRUE(worker.ok());
  EXPECT_EQ(*worker->linear_of(0), target.linear.front());
  EXPECT_EQ(worker->attention_of(0), nullptr);
}

TEST(DraftWorker, RefusesWhatTheTargetHasNot) {
  const auto pages = draft_worker(config_of("mamba2"), *parse_draft_layers("full"));
  EXPECT_EQ(pages.status().code(), StatusCode::unsupported);
  EXPECT_NE(pages.status().text().find("no layer of softmax attention"), std::string::npos);
  const auto states = draft_worker(config_of("qwen3"), *parse_draft_layers("linear"));
  EXPECT_EQ(states.status().code(), StatusCode::unsupported);
  EXPECT_FALSE(draft_worker(config_of("qwen3"), {}).ok());
}

TEST(DraftWorker, WordsAreFullOrLinear) {
  EXPECT_EQ(*parse_draft_layers("full,linear"),
            (std::vector<DraftLayer>{DraftLayer::full, DraftLayer::linear}));
  for (const char* words : {"", "full,", "softmax", "full linear"})
    EXPECT_EQ(parse_draft_layers(words).status().code(), StatusCode::invalid_argument) << words;
}

}  // namespace
}  // namespace attune::model
