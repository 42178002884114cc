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
#include "runtime/session.hpp"
#include "support/random_checkpoint.hpp"
#include "support/scratch_folder.hpp"

namespace attune::runtime {
namespace {

constexpr int kVocab = 40;
constexpr int kHidden = 12;
constexpr int kHeads = 3;
constexpr int kHeadDim = 4;
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

  static std::vector<double> product(const std::vector<float>& w, const std::vector<double>& x) {
    std::vector<double> y(w.size() / x.size(), 0.0);
    for (std::size_t r = 0; r < y.size(); ++r)
      for (std::size_t c = 0; c < x.size(); ++c) y[r] += w[r * x.size() + c] * x[c];
    return y;
  }
  static std::vector<double> normed(std::vector<double> x) {
    double squares = 0;
    for (double v : x) squares += v * v;
    for (double& v : x) v /= std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
    return x;
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

std::vector<std::int32_t> prompt(std::int32_t length) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < length; ++i) tokens.push_back((7 * length + i * 11) % kVocab);
  return tokens;
}

class LinearFamilyTest : public testing::Test {
 protected:
  LinearFamilyTest() : toy_(folder_.path()) { EXPECT_TRUE(families_.add(average()).ok()); }
  Result<std::unique_ptr<Session>> open(std::int64_t chunk_size) {
    return open(folder_.path().string(), families_, chunk_size);
  }
  static Result<std::unique_ptr<Session>> open(const std::string& folder,
                                               const model::LinearFamilies& families,
                                               std::int64_t chunk_size) {
    auto checkpoint = model::open_checkpoint(folder, &families);
    if (!checkpoint.ok()) return checkpoint.status();
    auto registry = Registry::open({.plugins = {plugin()}});
    if (!registry.ok()) return registry.status();
    SessionOptions options;
    options.device = cpu_device();
    options.num_threads = 2;
    options.weights = model::CpuWeights::f32;
    options.engine = {.context_limit = 100,
                      .scheduler = {.chunk_size = chunk_size, .max_batch = 3},
                      .keep_logits = true};
    const auto make = [&](const model::ModelConfig& config, Executor& executor,
                          std::optional<DType>) {
      BackendRequest request;
      request.device = options.device;
      request.dtypes = {.compute = DType::f32, .kv = DType::f32};
      return make_backends(*registry, config, request, executor);
    };
    return Session::open(std::move(*checkpoint), make, options);
  }
  static std::string plugin() {
    return std::string(ATTUNE_BINARY_DIR) + "/lib/test_plugin_average.so";
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
  const std::vector<std::string> plugins{plugin()};
  const auto described = model::families_of_plugins(plugins);
  ASSERT_TRUE(described.ok()) << described.status().text();
  for (const std::int64_t chunk : {1, 5, 64}) {
    auto session = open(folder_.path().string(), **described, chunk);
    ASSERT_TRUE(session.ok()) << session.status().text();
    EXPECT_EQ((*session)->selection().groups[0].of(Phase::decode)->backend, "average");
    EXPECT_EQ((*session)->engine().statistics().state_bytes,
              3 * kLayers * kHeads * kHeadDim * static_cast<std::int64_t>(sizeof(float)));
    expect_exact((*session)->engine(), {9, 30, 1});
  }
}

/// Attention, and feed-forwards behind both, by the common keys and names.
TEST_F(LinearFamilyTest, APluginsLayersStandBesideAttention) {
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
  const std::vector<std::string> plugins{plugin()};
  const auto described = model::families_of_plugins(plugins);
  ASSERT_TRUE(described.ok()) << described.status().text();
  std::vector<float> whole;
  for (const std::int64_t chunk : {64, 1, 7}) {
    auto session = open(folder.path().string(), **described, chunk);
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

TEST_F(LinearFamilyTest, ARecordIsHeldToItsFile) {
  const testing_support::ScratchFolder folder;
  testing_support::RandomCheckpoint(7).write(folder.path(), R"({"model_type": "toy",
      "vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "average_slopes": [0.1]})");
  const std::vector<std::string> plugins{plugin()};
  const auto described = model::families_of_plugins(plugins);
  ASSERT_TRUE(described.ok());
  const auto checkpoint = model::open_checkpoint(folder.path().string(), described->get());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(checkpoint.status().text().find("1 slopes for 3 value heads"), std::string::npos)
      << checkpoint.status().text();
}

TEST_F(LinearFamilyTest, ARecordsLayersAreTheModels) {
  const testing_support::ScratchFolder folder;
  testing_support::RandomCheckpoint(7).write(folder.path(), R"({"model_type": "toy",
      "vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
      "intermediate_size": 12, "average_layers": [0, 2], "average_slopes": [0.1, 0.7, 2.0]})");
  const std::vector<std::string> plugins{plugin()};
  const auto described = model::families_of_plugins(plugins);
  ASSERT_TRUE(described.ok());
  const auto checkpoint = model::open_checkpoint(folder.path().string(), described->get());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(checkpoint.status().text().find("'average' claims layer 2 of 2"), std::string::npos)
      << checkpoint.status().text();
}

/// out = W_o conv(W_i x), without an activation: what LinearCall says of short_conv.
TEST_F(LinearFamilyTest, ADescribedShortConvolutionIsLinear) {
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
  auto session = open(folder.path().string(), families, 5);
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
    inputs.push_back(Toy::product(in, Toy::normed(x)));
    std::vector<double> y(offset.begin(), offset.end());
    for (std::size_t c = 0; c < y.size(); ++c)
      for (std::size_t r = 0; r < kTaps; ++r) y[c] += taps[c * kTaps + r] * inputs[t + r][c];
    const std::vector<double> added = Toy::product(out, y);
    for (std::size_t c = 0; c < x.size(); ++c) x[c] += added[c];
    const std::vector<double> want = Toy::product(head, Toy::normed(x));
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

class StatedConstants : public LinearFamilyTest {
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
    auto session = open(folder.path().string(), families, 5);
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
