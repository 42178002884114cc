// A linear family that this library does not know: a toy of moving averages, its backend in a
// plugin, its config, states and arithmetic registered here, held against a few lines of double
// precision.
#include "model/linear_families.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/config_draft.hpp"
#include "model/described_family.hpp"
#include "model/linear_layer.hpp"
#include "runtime/linear_family_files.hpp"
#include "support/random_checkpoint.hpp"
#include "support/scratch_folder.hpp"

namespace attune::runtime {
namespace {

constexpr int kLayers = 2;
constexpr float kSlopes[kHeads] = {0.1f, 0.7f, 2.0f};

/// out = W_o average(W_v x).
class AverageMixer final : public model::LayerPart {
 public:
  AverageMixer(model::Loader& loader, int layer) : layer_(loader, layer) {
    const std::string prefix = loader.layer(layer) + "average.";
    value_ = loader.linear({prefix + "value", kHeads * kHeadDim}, kHidden);
    output_ = loader.linear({prefix + "output", kHidden}, kHeads * kHeadDim);
    slopes_ = loader.numbers(kSlopes);
  }
  void lay_out(model::StepMemory& memory, std::int64_t num_tokens) const override {
    const auto frame = memory.frame();
    (void)memory.take(DType::f32, {num_tokens, kHeads * kHeadDim});
    (void)memory.take(DType::f32, {num_tokens, kHeads * kHeadDim});
    layer_.lay_out(memory, num_tokens);
  }
  Status forward(model::Step& step, const TensorView& x, const TensorView& out) const override {
    const auto frame = step.memory.frame();
    LinearCall call;
    call.v = step.memory.take(DType::f32, {step.num_tokens, kHeads * kHeadDim});
    call.slopes = static_cast<const float*>(slopes_.data());
    const TensorView o = step.memory.take(DType::f32, {step.num_tokens, kHeads * kHeadDim});
    step.ops.linear(*value_, x, call.v);
    if (Status s = layer_.run(step, call, o); !s.ok()) return s;
    step.ops.linear(*output_, o, out);
    return {};
  }

 private:
  model::LinearLayer layer_;
  std::unique_ptr<model::Linear> value_;
  std::unique_ptr<model::Linear> output_;
  model::Buffer slopes_;
};

model::LinearFamily average() {
  return {.name = "average",
          .backend = "average",
          .matches = [](const model::ConfigReader& c) { return c.text("model_type") == "toy"; },
          .build =
              [](model::ConfigDraft& d) {
                d.read_without_attention();
                const model::LinearConfig linear{.family = "average",
                                                 .variant = Variant::lightning,
                                                 .num_k_heads = kHeads,
                                                 .num_v_heads = kHeads,
                                                 .head_dim_k = 1,
                                                 .head_dim_v = kHeadDim};
                d.fill(
                    d.layer_words([](int) { return model::LayerWord::linear; }),
                    [&](int, model::LayerWord) { return d.attention; }, &linear);
                for (model::LayerConfig& layer : d.config.layers)
                  layer.feed_forward = model::FeedForwardKind::none;
              },
          .state =
              [](const model::LinearConfig& l) {
                return cache::StateShape{.heads = l.num_v_heads, .dim_v = l.head_dim_v, .dim_k = 1};
              },
          .mixer = [](model::Loader& loader, int layer) -> std::unique_ptr<model::LayerPart> {
            return std::make_unique<AverageMixer>(loader, layer);
          }};
}

/// The checkpoint's weights, and the model as its definition says.
struct Toy {
  std::vector<float> embedding, head, value[kLayers], output[kLayers];

  explicit Toy(const std::filesystem::path& folder) {
    testing_support::RandomCheckpoint checkpoint(5);
    checkpoint.matrix("model.embed_tokens.weight", kVocab, kHidden, 1.0);
    embedding = checkpoint.last();
    checkpoint.matrix("lm_head.weight", kVocab, kHidden);
    head = checkpoint.last();
    checkpoint.ones("model.norm.weight", kHidden);
    for (int i = 0; i < kLayers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      checkpoint.ones(layer + "input_layernorm.weight", kHidden);
      checkpoint.matrix(layer + "average.value.weight", kHeads * kHeadDim, kHidden);
      value[i] = checkpoint.last();
      checkpoint.matrix(layer + "average.output.weight", kHidden, kHeads * kHeadDim);
      output[i] = checkpoint.last();
    }
    checkpoint.write(folder, R"({"model_type": "toy", "vocab_size": 40, "hidden_size": 12,
      "num_hidden_layers": 2, "intermediate_size": 12, "max_position_embeddings": 128,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
      "average_heads": 3, "average_dim": 4, "average_slopes": [0.1, 0.7, 2.0]})");
  }

  [[nodiscard]] std::vector<double> logits(const std::vector<std::int32_t>& tokens) const {
    std::vector<double> all;
    std::vector<double> state[kLayers];
    for (auto& s : state) s.assign(kHeads * kHeadDim, 0.0);
    for (std::int32_t token : tokens) {
      std::vector<double> x(embedding.begin() + token * kHidden,
                            embedding.begin() + (token + 1) * kHidden);
      for (int i = 0; i < kLayers; ++i) {
        const std::vector<double> v = product(value[i], normed(x));
        for (std::size_t c = 0; c < v.size(); ++c) {
          const double kept = std::exp(-static_cast<double>(kSlopes[c / kHeadDim]));
          state[i][c] = kept * state[i][c] + (1 - kept) * v[c];
        }
        const std::vector<double> out = product(output[i], state[i]);
        for (std::size_t c = 0; c < x.size(); ++c) x[c] += out[c];
      }
      const std::vector<double> row = product(head, normed(x));
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
};

class LinearFamilyTest : public testing::Test {
 protected:
  LinearFamilyTest() : toy_(folder_.path()) { EXPECT_TRUE(families_.add(average()).ok()); }
  Result<std::unique_ptr<Session>> open(std::int64_t chunk_size) {
    return open_tiny(folder_.path().string(), families_, chunk_size);
  }
  void expect_exact(Engine& engine, const std::vector<std::int32_t>& lengths) {
    std::vector<RequestId> ids;
    for (std::int32_t length : lengths) {
      const auto id = engine.submit(prompt(length), {.max_new_tokens = 6, .want_logits = true});
      ASSERT_TRUE(id.ok()) << id.status().text();
      ids.push_back(*id);
    }
    while (!engine.idle()) {
      const auto events = engine.step();
      ASSERT_TRUE(events.ok()) << events.status().text();
    }
    for (RequestId id : ids) {
      const Request done = engine.take(id);
      const std::vector<double> want = toy_.logits(done.tokens);
      ASSERT_EQ(done.logits.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(done.logits[i], want[i], 1e-4) << "logit " << i;
    }
  }

  testing_support::ScratchFolder folder_;
  Toy toy_;
  model::LinearFamilies families_;
};

TEST_F(LinearFamilyTest, RunsFromItsRecordAndAPlugin) {
  for (const std::int64_t chunk : {1, 5, 64}) {
    auto session = open(chunk);
    ASSERT_TRUE(session.ok()) << session.status().text();
    const Selection& selection = (*session)->selection();
    ASSERT_EQ(selection.groups.size(), 1u);
    EXPECT_EQ(selection.groups[0].group.kind, "average");
    EXPECT_EQ(selection.groups[0].of(Phase::decode)->backend, "average");
    EXPECT_EQ((*session)->engine().statistics().state_bytes,
              3 * kLayers * kHeads * kHeadDim * static_cast<std::int64_t>(sizeof(float)));
    expect_exact((*session)->engine(), {9, 30, 1});
  }
}

TEST_F(LinearFamilyTest, APluginsRecordAloneIsEnough) {
  const std::vector<std::string> plugins{average_plugin()};
  const auto described = model::families_of_plugins(plugins);
  ASSERT_TRUE(described.ok()) << described.status().text();
  for (const std::int64_t chunk : {1, 5, 64}) {
    auto session = open_tiny(folder_.path().string(), **described, chunk);
    ASSERT_TRUE(session.ok()) << session.status().text();
    EXPECT_EQ((*session)->selection().groups[0].of(Phase::decode)->backend, "average");
    EXPECT_EQ((*session)->engine().statistics().state_bytes,
              3 * kLayers * kHeads * kHeadDim * static_cast<std::int64_t>(sizeof(float)));
    expect_exact((*session)->engine(), {9, 30, 1});
  }
}

TEST_F(LinearFamilyTest, WithoutItsRecordTheModelIsUnknown) {
  const auto checkpoint = model::open_checkpoint(folder_.path().string());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(checkpoint.status().text().find("toy"), std::string::npos);
}

TEST_F(LinearFamilyTest, ARecordIsWholeAndItsNameItsOwn) {
  EXPECT_FALSE(families_.add(average()).ok());
  model::LinearFamily nameless = average();
  nameless.name.clear();
  EXPECT_FALSE(families_.add(nameless).ok());
  model::LinearFamily bare = average();
  bare.name = "bare";
  bare.mixer = nullptr;
  EXPECT_FALSE(families_.add(bare).ok());
}

}  // namespace
}  // namespace attune::runtime
