// The engine with a prefix cache against the engine without: the same bits, the same tokens, less
// to compute, no page lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/session_files.hpp"

namespace attune::runtime {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Opening {
  std::string family = "llama";
  bool shares = true;
  bool batch_invariant = true;
  std::int32_t page_size = 16;
  std::int64_t pool_tokens = 4096;
  SchedulerOptions scheduler{.chunk_size = 128, .max_batch = 4};
  PrefixOptions prefix{};
  SpeculationOptions speculation{};
};

std::unique_ptr<Session> open(Opening opening) {
  opening.prefix.enabled = opening.shares;
  return testing_support::open({.family = opening.family,
                                .page_size = opening.page_size,
                                .batch_invariant = opening.batch_invariant,
                                .engine = {.context_limit = 400,
                                           .pool_tokens = opening.pool_tokens,
                                           .scheduler = opening.scheduler,
                                           .prefix = opening.prefix,
                                           .speculation = opening.speculation,
                                           .keep_logits = true}});
}

Tokens prompt(std::size_t length, std::int32_t seed) {
  Tokens tokens;
  for (std::size_t i = 0; i < length; ++i)
    tokens.push_back(3 + (seed * 31 + static_cast<std::int32_t>(i * i) * 17) % 90);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A few requests, each with the logits of its last prompt token and of what it generates.
RequestId submit(Engine& engine, const Tokens& tokens, std::int64_t max_new_tokens = 12) {
  return testing_support::submit(engine, tokens,
                                 {.max_new_tokens = max_new_tokens,
                                  .want_logits = true,
                                  .logits_from = static_cast<std::int64_t>(tokens.size()) - 1});
}

void run(Engine& engine) {
  while (!engine.idle()) {
    const auto events = engine.step();
    ASSERT_TRUE(events.ok()) << events.status().text();
    if (engine.prefix_cache() == nullptr) continue;
    const Status sound = engine.prefix_cache()->check_invariants();
    ASSERT_TRUE(sound.ok()) << sound.text();
  }
}

/// Nothing is held but what is cached.
void expect_nothing_leaked(const Engine& engine) {
  for (std::size_t g = 0; g < engine.pools().size(); ++g) {
    const std::int64_t cached =
        engine.prefix_cache() != nullptr ? engine.prefix_cache()->held_pages(g) : 0;
    EXPECT_EQ(engine.pools()[g].num_held(), cached) << "pool " << g;
  }
}

struct Answer {
  Tokens tokens;
  std::vector<float> logits;
  std::int64_t cached = 0;
};

Answer answer(Engine& engine, RequestId id) {
  Request done = engine.take(id);
  EXPECT_EQ(done.finish_reason, FinishReason::length);
  return {std::move(done.tokens), std::move(done.logits), done.prefix.cached_tokens};
}

/// Prompts that begin alike at different lengths, one after the other.
std::vector<Tokens> conversation() {
  const Tokens system = prompt(150, 1);
  return {system + prompt(20, 2),
          system + prompt(45, 3),
          system,
          system + prompt(20, 2),
          prompt(64, 1),
          prompt(65, 1),
          prompt(30, 9),
          system + prompt(110, 4),
          system + prompt(110, 4) + prompt(80, 5),
          prompt(129, 1),
          prompt(128, 1),
          system + prompt(45, 3) + prompt(7, 6),
          prompt(30, 9) + prompt(40, 8)};
}

void expect_same(const std::vector<Answer>& a, const std::vector<Answer>& b, bool bits) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << "request " << i;
    ASSERT_EQ(a[i].logits.size(), b[i].logits.size()) << "request " << i;
    if (!bits) continue;
    EXPECT_EQ(
        std::memcmp(a[i].logits.data(), b[i].logits.data(), a[i].logits.size() * sizeof(float)), 0)
        << "request " << i << ", of which " << b[i].cached << " tokens were cached";
  }
}

std::vector<Answer> one_by_one(Engine& engine) {
  std::vector<Answer> answers;
  for (const Tokens& tokens : conversation()) {
    const RequestId id = submit(engine, tokens);
    run(engine);
    answers.push_back(answer(engine, id));
  }
  expect_nothing_leaked(engine);
  return answers;
}

std::vector<Answer> together(Engine& engine) {
  std::vector<RequestId> ids;
  for (const Tokens& tokens : conversation()) ids.push_back(submit(engine, tokens));
  run(engine);
  std::vector<Answer> answers;
  for (const RequestId id : ids) answers.push_back(answer(engine, id));
  expect_nothing_leaked(engine);
  return answers;
}

class PrefixSharingOf : public testing::TestWithParam<const char*> {};

TEST_P(PrefixSharingOf, AHitGivesTheBitsOfNoHit) {
  const auto plain = open({.family = GetParam(), .shares = false});
  const auto shared = open({.family = GetParam()});
  ASSERT_TRUE(plain && shared);
  const std::vector<Answer> expected = one_by_one(plain->engine());
  const std::vector<Answer> found = one_by_one(shared->engine());
  expect_same(expected, found, /*bits=*/true);
  EXPECT_EQ(found[0].cached, 0);
  EXPECT_GE(found[3].cached, 128) << "the same prompt again";
  EXPECT_GE(found[8].cached, 192) << "a longer one";
  EXPECT_EQ(plain->engine().statistics().cached_tokens, 0);
  EXPECT_GT(shared->engine().statistics().cached_tokens, 500);
}

TEST_P(PrefixSharingOf, SoItDoesForRequestsInOneBatchWithFewPages) {
  const auto plain = open({.family = GetParam(), .shares = false});
  const auto shared = open({.family = GetParam(), .pool_tokens = 400});
  ASSERT_TRUE(plain && shared);
  const std::vector<Answer> expected = one_by_one(plain->engine());
  const std::vector<Answer> found = together(shared->engine());
  expect_same(expected, found, /*bits=*/true);
  if (shared->engine().pools().empty()) return;
  EXPECT_GT(shared->engine().prefix_cache()->metrics().evicted_pages, 0);
}

TEST_P(PrefixSharingOf, OrdinaryModeGivesTheSameTokens) {
  const auto plain = open({.family = GetParam(), .shares = false, .batch_invariant = false});
  const auto shared = open({.family = GetParam(),
                            .batch_invariant = false,
                            .page_size = GetParam() == std::string("deepseek_v4") ? 8 : 4});
  ASSERT_TRUE(plain && shared);
  expect_same(one_by_one(plain->engine()), one_by_one(shared->engine()), /*bits=*/false);
  EXPECT_GT(shared->engine().statistics().cached_tokens, 500);
}

TEST(PrefixSharing, GoesTogetherWithSpeculation) {
  for (const char* family : {"llama", "qwen3_next", "gemma3_text"}) {
    std::vector<Tokens> answers;
    for (const bool shares : {false, true}) {
      const auto session = open({.family = family,
                                 .shares = shares,
                                 .pool_tokens = 400,
                                 .speculation = {.max_drafts = 3, .verify_as_decodes = true}});
      ASSERT_TRUE(session);
      Engine& engine = session->engine();
      std::vector<RequestId> ids;
      for (const Tokens& tokens : conversation()) {
        const auto id = engine.submit(tokens, {.max_new_tokens = 30});
        ASSERT_TRUE(id.ok());
        ids.push_back(*id);
      }
      run(engine);
      Tokens all;
      for (const RequestId id : ids) all = std::move(all) + engine.take(id).tokens;
      expect_nothing_leaked(engine);
      answers.push_back(std::move(all));
    }
    EXPECT_EQ(answers[0], answers[1]) << family;
  }
}

TEST(PrefixSharing, RequestsThatArriveTogetherComputeTheirBeginningOnce) {
  const auto session = open({.batch_invariant = false});
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  std::vector<RequestId> ids;
  for (std::int32_t i = 0; i < 4; ++i)
    ids.push_back(submit(engine, prompt(96, 1) + prompt(10, i), /*max_new_tokens=*/20));
  std::vector<std::int32_t> most_held;
  while (!engine.idle()) {
    ASSERT_TRUE(engine.step().ok());
    most_held.push_back(engine.pools()[0].num_held());
  }
  EXPECT_EQ(engine.statistics().cached_tokens, 3 * 96);
  EXPECT_LE(*std::ranges::max_element(most_held), 6 + 4 * 2) << "six pages are shared";
  for (const RequestId id : ids) EXPECT_EQ(answer(engine, id).logits.size() % 21, 0u);
}

TEST(PrefixSharing, ARequestThatWaitsIsCountedOnce) {
  const auto session = open({.scheduler = {.chunk_size = 128, .max_batch = 1}});
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  const Tokens common = prompt(128, 1);
  for (std::int32_t i = 0; i < 3; ++i) (void)submit(engine, common + prompt(20, 2 + i));
  run(engine);
  const PrefixMetrics metrics = engine.prefix_cache()->metrics();
  EXPECT_EQ(metrics.lookups, 3);
  EXPECT_EQ(metrics.hits, 2);
  EXPECT_EQ(metrics.lookup_tokens, 3 * 148);
  EXPECT_EQ(metrics.hit_tokens, engine.statistics().cached_tokens);
}

TEST(PrefixSharing, NamespacesAreKeptApart) {
  const auto session = open({});
  ASSERT_TRUE(session);
  Engine& engine = session->engine();
  for (const char* salt : {"a", "b", "a"}) {
    RequestOptions options{.max_new_tokens = 2};
    options.space.salt = salt;
    ASSERT_TRUE(engine.submit(prompt(100, 1), options).ok());
    run(engine);
  }
  EXPECT_EQ(engine.statistics().cached_tokens, 64);
}

/// Enough requests over enough keys that a backend reads what they share once for all of them.
TEST(PrefixSharing, ManyRequestsOfOnePrefixGiveTheTokensOfEach) {
  const SchedulerOptions crowd{.chunk_size = 128, .max_batch = 16};
  const auto plain = open({.shares = false, .batch_invariant = false});
  const auto shared = open({.batch_invariant = false, .pool_tokens = 8192, .scheduler = crowd});
  ASSERT_TRUE(plain && shared);
  std::vector<Answer> expected;
  std::vector<RequestId> ids;
  for (std::int32_t i = 0; i < 16; ++i) {
    const Tokens tokens = prompt(320, 1) + prompt(static_cast<std::size_t>(5 + i), 2 + i);
    const RequestId id = submit(plain->engine(), tokens);
    run(plain->engine());
    expected.push_back(answer(plain->engine(), id));
    ids.push_back(submit(shared->engine(), tokens));
  }
  run(shared->engine());
  std::vector<Answer> found;
  for (const RequestId id : ids) found.push_back(answer(shared->engine(), id));
  expect_same(expected, found, /*bits=*/false);
  expect_nothing_leaked(shared->engine());
}

INSTANTIATE_TEST_SUITE_P(Families, PrefixSharingOf,
                         testing::Values("llama", "gemma3_text", "exaone4", "gpt_oss", "mistral",
                                         "llama4_text", "deepseek_v3", "deepseek_v4", "glm_moe_dsa",
                                         "qwen3_next", "kimi_linear", "falcon_h1", "bamba",
                                         "granitemoehybrid", "nemotron_h", "minimax", "lfm2",
                                         "olmo_hybrid", "mamba2", "qwen3_5_text", "lfm2_moe",
                                         "minimax_m3_vl"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace attune::runtime
