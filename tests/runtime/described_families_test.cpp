// Linear families described by a record alone: what the record says is what runs, and what it cannot
// mean is refused by name.
#include "model/described_family.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/linear_family_files.hpp"
#include "support/random_checkpoint.hpp"
#include "support/scratch_folder.hpp"

namespace attune::runtime {
namespace {

/// Attention, and feed-forwards behind both, by the common keys and names.
TEST(DescribedFamilies, APluginsLayersStandBesideAttention) {
  const testing_support::ScratchFolder folder;
  testing_support::RandomCheckpoint checkpoint(6);
  checkpoint.matrix("model.embed_tokens.weight", kVocab, kHidden, 1.0);
  checkpoint.matrix("lm_head.weight", kVocab, kHidden);
  checkpoint.ones("model.norm.weight", kHidden);
  for (int i = 0; i < 2; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      checkpoint.ones(layer + norm + ".weight", kHidden);
    for (const char* part : {"gate_proj", "up_proj", "down_proj"})
      checkpoint.matrix(layer + "mlp." + part + ".weight", kHidden, kHidden);
    if (i == 0) {
      checkpoint.matrix(layer + "average.value.weight", kHeads * kHeadDim, kHidden);
      checkpoint.matrix(layer + "average.output.weight", kHidden, kHeads * kHeadDim);
    } else {
      for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"})
        checkpoint.matrix(layer + "self_attn." + part + ".weight", kHidden, kHidden);
    }
  }
  checkpoint.write(folder.path(), R"({"model_type": "toy", "vocab_size": 40, "hidden_size": 12,
      "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 12,
      "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
      "average_layers": [0], "average_slopes": [0.1, 0.7, 2.0]})");
  const std::vector<std::string> plugins{average_plugin()};
  const auto described = model::families_of_plugins(plugins);
  ASSERT_TRUE(described.ok()) << described.status().text();
  std::vector<float> whole;
  for (const std::int64_t chunk : {64, 1, 7}) {
    auto session = open_tiny(folder.path().string(), **described, chunk);
    ASSERT_TRUE(session.ok()) << session.status().text();
    const Selection& selection = (*session)->selection();
    ASSERT_EQ(selection.groups.size(), 2u);
    EXPECT_EQ(selection.groups[0].of(Phase::prefill)->backend, "average");
    EXPECT_EQ(selection.groups[1].of(Phase::prefill)->backend, "cpu");
    Engine& engine = (*session)->engine();
    const auto id = engine.submit(prompt(23), {.max_new_tokens = 4, .want_logits = true});
    ASSERT_TRUE(id.ok()) << id.status().text();
    while (!engine.idle()) ASSERT_TRUE(engine.step().ok());
    const std::vector<float> logits = engine.take(*id).logits;
    if (whole.empty()) whole = logits;
    ASSERT_EQ(logits.size(), whole.size());
    for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], whole[i], 1e-4);
  }
}

TEST(DescribedFamilies, ARecordIsHeldToItsFile) {
  const testing_support::ScratchFolder folder;
  testing_support::RandomCheckpoint(7).write(folder.path(), R"({"model_type": "toy",
      "vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "average_slopes": [0.1]})");
  const std::vector<std::string> plugins{average_plugin()};
  const auto described = model::families_of_plugins(plugins);
  ASSERT_TRUE(described.ok());
  const auto checkpoint = model::open_checkpoint(folder.path().string(), described->get());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(checkpoint.status().text().find("1 slopes for 3 value heads"), std::string::npos)
      << checkpoint.status().text();
}

TEST(DescribedFamilies, ARecordsLayersAreTheModels) {
  const testing_support::ScratchFolder folder;
  testing_support::RandomCheckpoint(7).write(folder.path(), R"({"model_type": "toy",
      "vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
      "intermediate_size": 12, "average_layers": [0, 2], "average_slopes": [0.1, 0.7, 2.0]})");
  const std::vector<std::string> plugins{average_plugin()};
  const auto described = model::families_of_plugins(plugins);
  ASSERT_TRUE(described.ok());
  const auto checkpoint = model::open_checkpoint(folder.path().string(), described->get());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(checkpoint.status().text().find("'average' claims layer 2 of 2"), std::string::npos)
      << checkpoint.status().text();
}

/// out = W_o conv(W_i x), without an activation: what LinearCall says of short_conv.
TEST(DescribedFamilies, ADescribedShortConvolutionIsLinear) {
  constexpr int kTaps = 3;
  const testing_support::ScratchFolder folder;
  testing_support::RandomCheckpoint checkpoint(8);
  checkpoint.matrix("model.embed_tokens.weight", kVocab, kHidden, 1.0);
  const std::vector<float> embedding = checkpoint.last();
  checkpoint.matrix("lm_head.weight", kVocab, kHidden);
  const std::vector<float> head = checkpoint.last();
  checkpoint.ones("model.norm.weight", kHidden);
  checkpoint.ones("model.layers.0.input_layernorm.weight", kHidden);
  checkpoint.matrix("model.layers.0.conv.in.weight", kHidden, kHidden);
  const std::vector<float> in = checkpoint.last();
  checkpoint.matrix("model.layers.0.conv.taps", kHidden, kTaps);
  const std::vector<float> taps = checkpoint.last();
  checkpoint.matrix("model.layers.0.conv.offset", 1, kHidden);
  const std::vector<float> offset = checkpoint.last();
  checkpoint.matrix("model.layers.0.conv.out.weight", kHidden, kHidden);
  const std::vector<float> out = checkpoint.last();
  checkpoint.write(folder.path(), R"({"model_type": "plain_conv", "vocab_size": 40,
      "hidden_size": 12, "num_hidden_layers": 1, "intermediate_size": 12,
      "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})");
  const LinearFamilyRecord record{
      .name = "plain_conv",
      .backend = "short_conv",
      .matches = [](const FamilyConfig& c) { return c.text("model_type") == "plain_conv"; },
      .describe =
          [](const FamilyConfig&) {
            return LinearFamilyLayers{.variant = Variant::short_conv,
                                      .conv_kernel = kTaps,
                                      .conv_dim = kHidden,
                                      .conv_input = "conv.in",
                                      .output = "conv.out",
                                      .conv_weight = "conv.taps",
                                      .conv_bias = "conv.offset",
                                      .feed_forward = false};
          }};
  model::LinearFamilies families;
  ASSERT_TRUE(model::add_described(record, families).ok());
  auto session = open_tiny(folder.path().string(), families, 5);
  ASSERT_TRUE(session.ok()) << session.status().text();
  Engine& engine = (*session)->engine();
  const auto id = engine.submit(prompt(11), {.max_new_tokens = 4, .want_logits = true});
  ASSERT_TRUE(id.ok()) << id.status().text();
  while (!engine.idle()) ASSERT_TRUE(engine.step().ok());
  const Request done = engine.take(*id);
  std::vector<std::vector<double>> inputs(kTaps - 1, std::vector<double>(kHidden, 0.0));
  for (std::size_t t = 0; t < done.tokens.size(); ++t) {
    const auto* const row = embedding.data() + done.tokens[t] * kHidden;
    std::vector<double> x(row, row + kHidden);
    inputs.push_back(product(in, normed(x)));
    std::vector<double> y(offset.begin(), offset.end());
    for (std::size_t c = 0; c < y.size(); ++c)
      for (std::size_t r = 0; r < kTaps; ++r) y[c] += taps[c * kTaps + r] * inputs[t + r][c];
    const std::vector<double> added = product(out, y);
    for (std::size_t c = 0; c < x.size(); ++c) x[c] += added[c];
    const std::vector<double> want = product(head, normed(x));
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(done.logits.at(t * kVocab + i), want[i], 1e-4) << "token " << t;
  }
}

/// What the record of `stated()` says, over layers that differ in their gates' size alone.
LinearFamilyLayers stated_layers;

LinearFamilyRecord stated(const char* backend) {
  return {.name = "stated",
          .backend = backend,
          .matches = [](const FamilyConfig& c) { return c.text("model_type") == "stated"; },
          .describe = [](const FamilyConfig&) { return stated_layers; }};
}

class StatedConstants : public testing::Test {
 protected:
  static constexpr int kChannels = 3 * kHeads * kHeadDim;

  StatedConstants() {
    stated_layers = {.num_k_heads = kHeads,
                     .num_v_heads = kHeads,
                     .head_dim_k = kHeadDim,
                     .head_dim_v = kHeadDim,
                     .conv_kernel = 3,
                     .conv_input = "mix.in",
                     .gate = "mix.gate",
                     .output = "mix.out",
                     .conv_weight = "mix.taps",
                     .a_log = "mix.a_log",
                     .dt_bias = "mix.dt_bias",
                     .feed_forward = false};
  }
  /// The last row of logits.
  static std::vector<float> logits(const char* backend, double gates) {
    const testing_support::ScratchFolder folder;
    testing_support::RandomCheckpoint checkpoint(9);
    checkpoint.matrix("model.embed_tokens.weight", kVocab, kHidden, 1.0);
    checkpoint.matrix("lm_head.weight", kVocab, kHidden);
    checkpoint.ones("model.norm.weight", kHidden);
    checkpoint.ones("model.layers.0.input_layernorm.weight", kHidden);
    checkpoint.matrix("model.layers.0.mix.in.weight", kChannels, kHidden);
    checkpoint.matrix("model.layers.0.mix.taps", kChannels, 3);
    checkpoint.matrix("model.layers.0.mix.out.weight", kHidden, kHeads * kHeadDim);
    checkpoint.matrix("model.layers.0.mix.beta.weight", kHeads, kHidden);
    checkpoint.ones("model.layers.0.mix.a_log", kHeads);
    checkpoint.ones("model.layers.0.mix.dt_bias", kHeads);
    checkpoint.matrix("model.layers.0.mix.gate.weight", kHeads, kHidden, gates);
    checkpoint.write(folder.path(), R"({"model_type": "stated", "vocab_size": 40,
        "hidden_size": 12, "num_hidden_layers": 1, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": false})");
    model::LinearFamilies families;
    EXPECT_TRUE(model::add_described(stated(backend), families).ok());
    auto session = open_tiny(folder.path().string(), families, 5);
    EXPECT_TRUE(session.ok()) << session.status().text();
    if (!session.ok()) return {};
    Engine& engine = (*session)->engine();
    const auto id = engine.submit(prompt(11), {.max_new_tokens = 1, .want_logits = true});
    EXPECT_TRUE(id.ok()) << id.status().text();
    while (!engine.idle()) EXPECT_TRUE(engine.step().ok());
    const std::vector<float> all = engine.take(*id).logits;
    return {all.begin() + 10 * kVocab, all.begin() + 11 * kVocab};
  }
};

TEST_F(StatedConstants, ABoundedStepHearsNoGate) {
  stated_layers.variant = Variant::mamba2;
  EXPECT_NE(logits("mamba2", 1.0), logits("mamba2", 4.0));
  stated_layers.dt_min = stated_layers.dt_max = 0.25f;
  EXPECT_EQ(logits("mamba2", 1.0), logits("mamba2", 4.0));
}

TEST_F(StatedConstants, ABetaOfNothingWritesNoState) {
  stated_layers.variant = Variant::gdn;
  stated_layers.beta = "mix.beta";
  const std::vector<float> one = logits("gdn", 1.0);
  stated_layers.beta_scale = 2.0f;
  EXPECT_NE(logits("gdn", 1.0), one);
  stated_layers.beta_scale = 0.0f;
  EXPECT_EQ(logits("gdn", 1.0), logits("gdn", 4.0)) << "decays of an empty state";
}

TEST_F(StatedConstants, WhatIsNoConstantIsRefused) {
  const auto refusal = [&](const char* part) {
    const testing_support::ScratchFolder folder;
    testing_support::RandomCheckpoint(9).write(folder.path(), R"({"model_type": "stated",
        "vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 1})");
    model::LinearFamilies families;
    EXPECT_TRUE(model::add_described(stated("gdn"), families).ok());
    const auto checkpoint = model::open_checkpoint(folder.path().string(), &families);
    ASSERT_FALSE(checkpoint.ok());
    EXPECT_NE(checkpoint.status().text().find(part), std::string::npos)
        << checkpoint.status().text();
  };
  stated_layers.variant = Variant::gdn;
  stated_layers.beta_scale = NAN;
  refusal("a beta scale of nan");
  stated_layers.beta_scale = 1.0f;
  stated_layers.dt_min = 1.0f;
  stated_layers.dt_max = 0.5f;
  refusal("steps of 1.0");
  stated_layers.dt_min = 0.0f;
  stated_layers.gate_lower_bound = 1.0f;
  refusal("a lower bound of gates of 1.0");
}

}  // namespace
}  // namespace attune::runtime
