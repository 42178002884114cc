// The engine over a tiny golden model: batching, preemption, windows, sampling and refusals.
#include "runtime/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/session_files.hpp"

namespace attune::runtime {
namespace {

using testing_support::golden;
using testing_support::open;
using testing_support::run;
using testing_support::submit;
using Opening = testing_support::SmallSession;

std::vector<std::int32_t> prompt(std::size_t length, std::int32_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < length; ++i)
    tokens.push_back(3 + (seed * 31 + static_cast<std::int32_t>(i) * 17) % 90);
  return tokens;
}

Request run_alone(Engine& engine, const std::vector<std::int32_t>& tokens,
                  const RequestOptions& options) {
  const RequestId id = submit(engine, tokens, options);
  run(engine);
  return engine.take(id);
}

TEST(Engine, ARequestsBitsDoNotDependOnItsNeighbours) {
  Opening opening;
  opening.batch_invariant = true;
  opening.engine.keep_logits = true;
  opening.engine.scheduler = {.chunk_size = 16, .max_batch = 8};
  const auto session = open(opening);
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  const RequestOptions options{.max_new_tokens = 12, .want_logits = true};
  const auto tokens = prompt(16, 1);  // one chunk, so that its own cut is the same in company
  const Request alone = run_alone(engine, tokens, options);

  // Neighbours of all lengths, some decoding already when it arrives, some arriving later.
  for (std::int32_t i = 0; i < 3; ++i)
    (void)submit(engine, prompt(5 + 9 * static_cast<std::size_t>(i), 10 + i), options);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine.step().ok());
  const RequestId id = submit(engine, tokens, options);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine.step().ok());
  (void)submit(engine, prompt(40, 20), options);
  run(engine);
  const Request together = engine.take(id);
  EXPECT_EQ(together.tokens, alone.tokens);
  ASSERT_EQ(together.logits.size(), alone.logits.size());
  EXPECT_EQ(
      std::memcmp(together.logits.data(), alone.logits.data(), alone.logits.size() * sizeof(float)),
      0);
}

TEST(Engine, PreemptionAndBatchingChangeNoSampledToken) {
  const RequestOptions options{.max_new_tokens = 40,
                               .sampling = {.temperature = 1.0, .top_k = 20, .seed = 5}};
  const auto roomy = open(Opening{});
  ASSERT_TRUE(roomy);
  std::vector<std::vector<std::int32_t>> expected;
  for (std::int32_t i = 0; i < 4; ++i)
    expected.push_back(run_alone(roomy->engine(), prompt(20, i), options).tokens);

  Opening tight;
  tight.engine.pool_tokens = 100;
  const auto session = open(tight);
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  std::vector<RequestId> ids;
  for (std::int32_t i = 0; i < 4; ++i) ids.push_back(submit(engine, prompt(20, i), options));
  run(engine);
  EXPECT_GT(engine.statistics().num_preemptions, 0);
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(engine.take(ids[i]).tokens, expected[i]) << "request " << i;
  EXPECT_EQ(engine.pools()[0].num_held(), 0);
}

TEST(Engine, AWindowedLayersMemoryDoesNotGrow) {
  Opening opening;
  opening.family = "exaone4";  // windows of 6 tokens, and full attention
  opening.engine.scheduler = {.chunk_size = 8, .max_batch = 1};
  const auto session = open(opening);
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  ASSERT_EQ(engine.pools().size(), 2u);
  (void)submit(engine, prompt(120, 3), {.max_new_tokens = 70});
  std::int32_t most = 0;
  std::int32_t most_full = 0;
  while (!engine.idle()) {
    ASSERT_TRUE(engine.step().ok());
    most_full = std::max(most_full, engine.pools()[0].num_held());
    most = std::max(most, engine.pools()[1].num_held());
  }
  EXPECT_GE(most_full, 47);
  EXPECT_LE(most, 5);
  EXPECT_LE(engine.pools()[1].num_pages(), 5) << "nor is memory set aside for more";
}

TEST(Engine, EndsForTheReasonItSays) {
  const auto session = open(Opening{});
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  const auto tokens = prompt(30, 2);
  const Request longer = run_alone(engine, tokens, {.max_new_tokens = 10});
  EXPECT_EQ(longer.finish_reason, FinishReason::length);
  EXPECT_EQ(longer.num_generated(), 10);
  const std::int32_t fifth = longer.tokens[34];
  const auto first =
      std::find(longer.tokens.begin() + 30, longer.tokens.end(), fifth) - longer.tokens.begin();
  const Request stopped = run_alone(engine, tokens, {.max_new_tokens = 10, .stop_tokens = {fifth}});
  EXPECT_EQ(stopped.finish_reason, FinishReason::stop);
  EXPECT_EQ(stopped.num_tokens(), first) << "the stop token is not part of the text";
  const Request full = run_alone(engine, prompt(195, 2), {.max_new_tokens = 100});
  EXPECT_EQ(full.finish_reason, FinishReason::context);
  EXPECT_EQ(run_alone(engine, tokens, {.max_new_tokens = 0}).num_generated(), 0);
}

TEST(Engine, ACancelledRequestReturnsItsPages) {
  const auto session = open(Opening{});
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  const RequestId id = submit(engine, prompt(50, 1), {.max_new_tokens = 50});
  ASSERT_TRUE(engine.step().ok());
  EXPECT_GT(engine.pools()[0].num_held(), 0);
  engine.cancel(id);
  EXPECT_EQ(engine.pools()[0].num_held(), 0);
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.take(id).finish_reason, FinishReason::cancelled);
}

TEST(Engine, RefusesWhatCannotRun) {
  Opening opening;
  opening.engine.pool_tokens = 64;
  const auto session = open(opening);
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  const auto text = [&](const std::vector<std::int32_t>& tokens, const RequestOptions& options) {
    const Result<RequestId> id = engine.submit(tokens, options);
    EXPECT_EQ(id.status().code(), StatusCode::invalid_argument);
    return id.status().text();
  };
  EXPECT_NE(text({}, {}).find("empty"), std::string::npos);
  EXPECT_NE(text(prompt(201, 1), {}).find("201 tokens"), std::string::npos);
  EXPECT_NE(text(prompt(100, 1), {}).find("25 pages of 4 tokens"), std::string::npos);
  EXPECT_NE(text({5, 96}, {}).find("token 96"), std::string::npos);
  EXPECT_NE(text({-1}, {}).find("token -1"), std::string::npos);
  EXPECT_NE(text({5}, {.sampling = {.temperature = -1}}).find("temperature"), std::string::npos);
  EXPECT_NE(text({5}, {.want_logits = true}).find("keep_logits"), std::string::npos);
}

TEST(Engine, FailsTheRequestThatOutgrowsThePoolAndGoesOn) {
  Opening opening;
  opening.engine.pool_tokens = 64;
  const auto session = open(opening);
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  const Request outgrown = run_alone(engine, prompt(60, 1), {.max_new_tokens = 50});
  EXPECT_EQ(outgrown.finish_reason, FinishReason::failed);
  EXPECT_EQ(outgrown.failure.code(), StatusCode::out_of_pages);
  EXPECT_EQ(run_alone(engine, prompt(10, 1), {.max_new_tokens = 5}).num_generated(), 5);
}

TEST(Session, AnInt8CacheIsCalibratedAndStaysClose) {
  for (const char* family : {"llama", "gemma3_text"}) {
    std::vector<std::vector<float>> logits;
    for (const DType kv : {DType::f32, DType::i8}) {
      Opening opening{.family = family};
      opening.kv_dtype = kv;
      opening.engine.keep_logits = true;
      const auto session = open(opening);
      ASSERT_TRUE(session);
      const RequestOptions options{.max_new_tokens = 0, .want_logits = true};
      logits.push_back(run_alone(session->engine(), prompt(60, 4), options).logits);
    }
    ASSERT_EQ(logits[0].size(), logits[1].size());
    double worst = 0;
    double largest = 0;
    for (std::size_t i = 0; i < logits[0].size(); ++i) {
      worst = std::max(worst, std::fabs(double{logits[0][i]} - logits[1][i]));
      largest = std::max(largest, std::fabs(double{logits[0][i]}));
    }
    EXPECT_GT(worst, 0.0) << "the cache is really int8";
    EXPECT_LT(worst, 0.1 * largest) << family;
  }
}

TEST(Session, RefusesBeforeWeightsAreRead) {
  auto checkpoint = model::open_checkpoint(golden("gpt_oss"));
  ASSERT_TRUE(checkpoint.ok());
  const Result<Registry> registry = Registry::open({});
  const auto make = [&](const model::ModelConfig& config, Executor& executor,
                        std::optional<DType> kv_dtype) {
    BackendRequest request;
    request.device = cpu_device();
    request.selection.prefill = request.selection.decode = "torch_native";
    request.selection.kv_dtype = kv_dtype;
    request.dtypes = {.compute = DType::f32, .kv = DType::f32};
    return make_backends(*registry, config, request, executor);
  };
  SessionOptions options;
  options.device = cpu_device();
  const auto session = Session::open(std::move(*checkpoint), make, options);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), StatusCode::unsupported);
  ASSERT_FALSE(session.status().refusals().empty());
  EXPECT_EQ(session.status().refusals()[0].rule, "sinks");
}

TEST(Checkpoint, NamesWhatIsMissingOrMisshapen) {
  EXPECT_NE(model::open_checkpoint("/nowhere").status().text().find("/nowhere"), std::string::npos);
  auto checkpoint = model::open_checkpoint(golden("llama"));
  ASSERT_TRUE(checkpoint.ok());
  auto threads = device::ThreadPool::make({.num_threads = 1});
  auto ops = model::make_cpu_ops(**threads, {.weights = model::CpuWeights::f32});
  model::ModelConfig wider = checkpoint->config;
  wider.intermediate_size = 96;
  for (auto& layer : wider.layers) layer.intermediate_size = 96;
  const auto groups = model::attention_groups(wider, {});
  auto model = model::Model::make(wider, groups, *checkpoint->weights, **ops, {});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().text().find("model.layers.0.mlp.gate_proj.weight"), std::string::npos);
  model::ModelConfig deeper = checkpoint->config;
  deeper.layers.push_back(deeper.layers.back());
  model = model::Model::make(deeper, model::attention_groups(deeper, {}), *checkpoint->weights,
                             **ops, {});
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().text().find("model.layers.2."), std::string::npos);
}

}  // namespace
}  // namespace attune::runtime
