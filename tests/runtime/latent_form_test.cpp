// Latent attention absorbed and expanded: who decides, how prefixes are cut, and that both give one
// model's logits.
#include "runtime/latent_form.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "attention/page_table.hpp"
#include "runtime/latent_plans.hpp"
#include "runtime/session_files.hpp"
#include "support/latent_checkpoint.hpp"
#include "support/scratch_folder.hpp"

namespace attune::runtime {
namespace {

model::AttentionConfig deepseek_v3() {
  model::AttentionConfig config;
  config.kind = model::AttentionLayerKind::mla;
  config.num_qo_heads = 128;
  config.kv_lora_rank = 512;
  config.qk_rope_head_dim = 64;
  config.qk_nope_head_dim = 128;
  config.head_dim_qk = 192;
  config.head_dim_vo = 128;
  return config;
}

/// Requests of `prefix` cached tokens and `queries` new ones.
struct Prompts {
  std::vector<std::int64_t> prefix;
  std::vector<std::int64_t> queries;
  std::vector<std::vector<std::int32_t>> pages{};
  attention::PageTable table{};

  BatchView view(std::int32_t page_size) {
    std::vector<attention::PageTableRow> rows;
    std::int32_t next = 0;
    pages.resize(prefix.size());
    for (std::size_t i = 0; i < prefix.size(); ++i) {
      const std::int64_t kv_len = prefix[i] + queries[i];
      pages[i].resize(static_cast<std::size_t>((kv_len + page_size - 1) / page_size));
      std::iota(pages[i].begin(), pages[i].end(), next);
      std::reverse(pages[i].begin(), pages[i].end());
      next += static_cast<std::int32_t>(pages[i].size());
      rows.push_back({.pages = pages[i], .kv_len = kv_len, .qo_len = queries[i]});
    }
    EXPECT_TRUE(table.assign(rows, page_size).ok());
    return table.view(BatchForm::extend);
  }
};

TEST(LatentForm, QueriesDecideOverALongPrefix) {
  const model::AttentionConfig config = deepseek_v3();
  const auto cheaper = [&](std::int64_t prefix, std::int64_t queries,
                           DeviceKind device = DeviceKind::cpu) {
    Prompts prompts{.prefix = {prefix}, .queries = {queries}};
    const LatentWork work = latent_work(prompts.view(64));
    return expanded_cost(config, work, device) < absorbed_cost(config, work);
  };
  // A key's expansion is 131072 multiply-adds, which 768 fewer a pair earn back at 171 queries.
  EXPECT_FALSE(cheaper(100000, 170));
  EXPECT_TRUE(cheaper(100000, 172));
  EXPECT_TRUE(cheaper(0, 1));
  EXPECT_TRUE(cheaper(0, 4096));
  // On a GPU it costs four times as much, and a prompt of its own has few queries a key.
  EXPECT_FALSE(cheaper(100000, 680, DeviceKind::cuda));
  EXPECT_TRUE(cheaper(100000, 700, DeviceKind::cuda));
  EXPECT_FALSE(cheaper(0, 1000, DeviceKind::cuda));
  EXPECT_TRUE(cheaper(0, 1100, DeviceKind::cuda));
}

TEST(LatentPlans, PrefixesAreCutIntoEqualChunks) {
  const auto threads = device::ThreadPool::make({.num_threads = 1});
  ASSERT_TRUE(threads.ok());
  const auto ops = model::make_cpu_ops(**threads, {});
  ASSERT_TRUE(ops.ok());
  const Result<Registry> registry = Registry::open({});
  const AttentionSpec spec{.num_qo_heads = 2,
                           .num_kv_heads = 2,
                           .head_dim_qk = 20,
                           .head_dim_vo = 16,
                           .sm_scale = 0.2f,
                           .q_dtype = DType::f32,
                           .o_dtype = DType::f32,
                           .kv_dtype = DType::f32};
  ExpandedBackends backends;
  for (const bool causal : {true, false}) {
    BackendContext context{.spec = spec, .device = cpu_device()};
    context.spec.causal = causal;
    context.executor = threads->get();
    auto made = registry->make("cpu", context);
    ASSERT_TRUE(made.ok()) << made.status().text();
    (causal ? backends.own : backends.prefix) = std::move(*made);
  }
  const model::AttentionConfig config = deepseek_v3();
  const EngineOptions options{.scheduler = {}, .latent = {.chunk_tokens = 8}};
  LatentPlans plans(backends, config, options, **ops);

  Prompts prompts{.prefix = {10, 0, 7}, .queries = {3, 4, 2}};
  const auto parts = plans.plan(prompts.view(4), 5);
  ASSERT_TRUE(parts.ok()) << parts.status().text();
  ASSERT_EQ(parts->size(), 4u);
  const auto expect = [&](std::size_t at, std::int64_t row, std::int64_t rows,
                          const std::vector<std::int32_t>& slots) {
    const model::ExpandedPart& part = (*parts)[at];
    EXPECT_EQ(part.first_row, row);
    EXPECT_EQ(part.num_rows, rows);
    const auto* have = part.slots.as<std::int32_t>();
    EXPECT_EQ(std::vector<std::int32_t>(have, have + part.slots.shape[0]), slots);
  };
  // Pages of four tokens, each request's in falling order: 3 2 1 0, 4, 7 6 5.
  expect(0, 5, 9, {6, 7, 0, 16, 17, 18, 19, 27, 20});
  expect(1, 5, 3, {12, 13, 14, 15, 8, 9, 10, 11});
  // The second request has no prefix: its rows see nothing here.
  expect(2, 5, 9, {4, 5, 28, 29, 30, 31, 24, 25});
  expect(3, 12, 2, {26});
}

struct Opening {
  std::string family = "deepseek_v2";
  std::string folder{};  ///< instead of a golden model's
  std::string backend = "cpu";
  DType kv_dtype = DType::f32;
  LatentOptions latent{};
  std::int64_t chunk_size = 7;
  bool batch_invariant = false;
};

Result<std::unique_ptr<Session>> open(const Opening& opening) {
  return testing_support::try_open(
      {.family = opening.family,
       .folder = opening.folder,
       .backend = opening.backend,
       .kv_dtype = opening.kv_dtype,
       .batch_invariant = opening.batch_invariant,
       .engine = {.context_limit = 100,
                  .pool_tokens = 1024,
                  .scheduler = {.chunk_size = opening.chunk_size, .max_batch = 4},
                  .latent = opening.latent,
                  .keep_logits = true}});
}

struct Outcome {
  std::vector<Request> requests;
  LatentStatistics latent;
};

/// Prompts of several lengths at once.
Outcome run(const Opening& opening) {
  auto session = open(opening);
  EXPECT_TRUE(session.ok()) << session.status().text();
  if (!session.ok()) return {};
  Engine& engine = (*session)->engine();
  std::vector<RequestId> ids;
  for (const std::int32_t length : {40, 3, 29}) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < length; ++i) tokens.push_back(3 + (length * 31 + i * 17) % 90);
    const auto id = engine.submit(tokens, {.max_new_tokens = 3, .want_logits = true});
    EXPECT_TRUE(id.ok()) << id.status().text();
    ids.push_back(*id);
  }
  while (!engine.idle()) {
    const auto events = engine.step();
    EXPECT_TRUE(events.ok()) << events.status().text();
    if (!events.ok()) return {};
  }
  Outcome outcome{.requests = {}, .latent = engine.statistics().latent};
  for (RequestId id : ids) outcome.requests.push_back(engine.take(id));
  return outcome;
}

void expect_near(const Outcome& a, const Outcome& b, float tolerance) {
  ASSERT_EQ(a.requests.size(), b.requests.size());
  for (std::size_t r = 0; r < a.requests.size(); ++r) {
    EXPECT_EQ(a.requests[r].tokens, b.requests[r].tokens);
    ASSERT_EQ(a.requests[r].logits.size(), b.requests[r].logits.size());
    for (std::size_t i = 0; i < a.requests[r].logits.size(); ++i)
      ASSERT_NEAR(a.requests[r].logits[i], b.requests[r].logits[i], tolerance)
          << "request " << r << ", logit " << i;
  }
}

class LatentForms : public testing::TestWithParam<const char*> {};

TEST_P(LatentForms, ATinyChunkBoundGivesTheSameLogits) {
  Opening opening{.family = GetParam(), .latent = {.form = LatentForm::absorbed}};
  const Outcome absorbed = run(opening);
  EXPECT_EQ(absorbed.latent.expanded, 0);
  for (const std::int64_t chunk : {1, 5, 1000}) {
    opening.latent = {.form = LatentForm::expanded, .chunk_tokens = chunk};
    const Outcome expanded = run(opening);
    EXPECT_EQ(expanded.latent.absorbed, 0);
    EXPECT_GT(expanded.latent.prefix_chunks, 100 / chunk);
    expect_near(expanded, absorbed, 1e-4f);
  }
}

TEST_P(LatentForms, ACacheOf16BitsIsExpandedAsItIsRead) {
  Opening opening{
      .family = GetParam(), .kv_dtype = DType::bf16, .latent = {.form = LatentForm::absorbed}};
  const Outcome absorbed = run(opening);
  opening.latent = {.form = LatentForm::expanded, .chunk_tokens = 9};
  // A latent that rounds to the other side of bf16 is a whole step of it apart: up to 2.2e-3 on AVX2.
  expect_near(run(opening), absorbed, 4e-3f);
}

INSTANTIATE_TEST_SUITE_P(Golden, LatentForms,
                         testing::Values("deepseek_v2", "deepseek_v3", "longcat_flash", "minicpm3",
                                         "kimi_linear"));

TEST(LatentForm, TokensOf656BytesAreReadAsReferenceReadsThem) {
  const attune::testing_support::ScratchFolder folder;
  attune::testing_support::write_latent_checkpoint(folder.path(), {});
  Opening opening{.folder = folder.path().string(),
                  .backend = "reference",
                  .kv_dtype = DType::fp8_e4m3,
                  .latent = {}};
  const Outcome reference = run(opening);
  for (const char* backend : {"cpu", "torch_native"}) {
    opening.backend = backend;
    // A latent that rounds to the other side of e4m3 is a whole step of it apart.
    expect_near(run(opening), reference, 3e-2f);
  }
}

TEST(LatentForm, TheCheaperOneIsTakenStepByStep) {
  const LatentStatistics whole = run({.chunk_size = 128}).latent;
  EXPECT_GT(whole.expanded, 0);
  EXPECT_EQ(whole.absorbed, 0);
  // Two queries of a narrow model do not pay for expanding forty keys.
  const LatentStatistics pieces = run({.chunk_size = 2}).latent;
  EXPECT_GT(pieces.absorbed, pieces.expanded);
  EXPECT_GT(pieces.expanded, 0);
}

TEST(LatentForm, BatchInvariantPromptsStayAbsorbed) {
  const LatentStatistics latent = run({.batch_invariant = true}).latent;
  EXPECT_EQ(latent.expanded, 0);
  EXPECT_GT(latent.absorbed, 0);
}

TEST(LatentForm, WhatCannotBeExpandedIsRefused) {
  const auto session = open({.latent = {.form = LatentForm::expanded}, .batch_invariant = true});
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.status().text().find("batch-invariant"), std::string::npos);
  EXPECT_FALSE(open({.latent = {.chunk_tokens = 0}}).ok());
}

}  // namespace
}  // namespace attune::runtime
