// Speculation: what is guessed, and that no token, end or page depends on it.
#include "runtime/speculation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/session_files.hpp"

namespace attune::runtime {
namespace {

using testing_support::run;
using testing_support::submit;
using Tokens = std::vector<std::int32_t>;

Tokens guessed(const Tokens& tokens, const SpeculationOptions& options, std::int64_t limit) {
  Tokens drafts{99};
  propose_by_lookup(tokens, options, limit, drafts);
  return drafts;
}

TEST(Lookup, GuessesWhatFollowedTheSameTokensBefore) {
  const SpeculationOptions options{.max_drafts = 8};
  EXPECT_EQ(guessed({1, 2, 3, 4, 5, 9, 1, 2}, options, 3), (Tokens{3, 4, 5}));
  EXPECT_EQ(guessed({1, 2, 3, 4, 5, 9, 1, 2}, options, 1), (Tokens{3}));
  EXPECT_EQ(guessed({1, 2, 3, 7, 1, 2, 4, 8, 1, 2}, options, 2), (Tokens{4, 8})) << "the latest";
  EXPECT_EQ(guessed({5, 1, 2, 3, 7, 1, 2, 4, 5, 1, 2}, options, 2), (Tokens{3, 7}))
      << "the longest";
  EXPECT_EQ(guessed({1, 2, 3, 9, 3}, options, 4), Tokens{}) << "one token is no n-gram of two";
  EXPECT_EQ(guessed({1, 2, 3, 9, 3}, {.max_drafts = 8, .min_ngram = 1}, 2), (Tokens{9, 3}));
  EXPECT_EQ(guessed({1, 2, 3, 9, 3, 1, 2}, options, 0), Tokens{});
  EXPECT_EQ(guessed({}, options, 4), Tokens{});
  EXPECT_EQ(guessed({7}, options, 4), Tokens{});
}

TEST(Lookup, ARepetitionGoesOn) {
  const SpeculationOptions options{.max_drafts = 8};
  EXPECT_EQ(guessed({4, 4, 4, 4}, options, 5), (Tokens{4, 4, 4, 4, 4}));
  EXPECT_EQ(guessed({1, 2, 3, 1, 2, 3, 1, 2}, options, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
}

TEST(DraftPace, GrowsWithLuckAndFallsWithoutIt) {
  DraftPace pace;
  const std::int64_t first = pace.length();
  pace.record(first, first);
  EXPECT_EQ(pace.length(), 2 * first);
  pace.record(2, 2);
  EXPECT_EQ(pace.length(), 2 * first) << "a short guess that held says nothing against long ones";
  pace.record(8, 3);
  EXPECT_EQ(pace.length(), 4);
  pace.record(4, 0);
  EXPECT_EQ(pace.length(), 1);
}

TEST(Speculation, RefusesNumbersOutsideTheirRange) {
  EXPECT_TRUE(validate_speculation({}).ok());
  EXPECT_TRUE(validate_speculation({.max_drafts = 64, .min_ngram = 1, .max_ngram = 1}).ok());
  EXPECT_FALSE(validate_speculation({.max_drafts = -1}).ok());
  EXPECT_FALSE(validate_speculation({.max_drafts = 65}).ok());
  EXPECT_FALSE(validate_speculation({.max_drafts = 4, .min_ngram = 0}).ok());
  EXPECT_FALSE(validate_speculation({.max_drafts = 4, .min_ngram = 3, .max_ngram = 2}).ok());
}

struct Opening {
  std::string family = "llama";
  SpeculationOptions speculation{};
  bool batch_invariant = false;
  std::int64_t pool_tokens = 4096;
  std::int64_t max_batch = 16;
  std::int64_t chunk_size = 64;
  bool share_prefixes = false;
};

std::unique_ptr<Session> open(const Opening& opening) {
  return testing_support::open(
      {.family = opening.family,
       .page_size = opening.family == "deepseek_v4" ? 8 : 4,
       .batch_invariant = opening.batch_invariant,
       .engine = {.context_limit = 200,
                  .pool_tokens = opening.pool_tokens,
                  .scheduler = {.chunk_size = opening.chunk_size, .max_batch = opening.max_batch},
                  .prefix = {.enabled = opening.share_prefixes},
                  .speculation = opening.speculation}});
}

/// A text that repeats itself with small changes, so that some guesses hold and some do not.
Tokens repetitive(std::size_t length, std::int32_t seed) {
  Tokens tokens;
  for (std::size_t i = 0; i < length; ++i)
    tokens.push_back(3 + static_cast<std::int32_t>((i % 11 * 7 + (i % 37 == 5 ? 1 : 0)) % 80) +
                     seed);
  return tokens;
}

/// Several requests at once; their tokens in order.
std::vector<Request> generate(Engine& engine, const std::vector<Tokens>& prompts,
                              const RequestOptions& options) {
  std::vector<RequestId> ids;
  for (const Tokens& prompt : prompts) ids.push_back(submit(engine, prompt, options));
  run(engine);
  std::vector<Request> done;
  for (const RequestId id : ids) done.push_back(engine.take(id));
  const bool caches = engine.prefix_cache() != nullptr;
  for (const PagePool& pool : engine.pools()) EXPECT_TRUE(caches || pool.num_held() == 0);
  return done;
}

/// The same requests with and without speculation.
void expect_no_difference(const Opening& opening, const RequestOptions& options,
                          bool expect_accepted = true) {
  const std::vector<Tokens> prompts{repetitive(60, 0), repetitive(23, 4), repetitive(1, 2),
                                    repetitive(130, 9)};
  Opening plain = opening;
  plain.speculation.max_drafts = 0;
  const auto without = open(plain);
  const auto with = open(opening);
  ASSERT_TRUE(without && with);
  const auto expected = generate(without->engine(), prompts, options);
  const auto have = generate(with->engine(), prompts, options);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(have[i].tokens, expected[i].tokens) << opening.family << ", request " << i;
    EXPECT_EQ(have[i].finish_reason, expected[i].finish_reason) << opening.family;
  }
  const EngineStatistics s = with->engine().statistics();
  EXPECT_GT(s.num_drafts, 0) << opening.family;
  EXPECT_LE(s.num_accepted_drafts, s.num_drafts);
  if (expect_accepted) {
    EXPECT_GT(s.num_accepted_drafts, 0) << opening.family;
  }
}

TEST(Speculation, ChangesNoGreedyToken) {
  for (const char* family :
       {"llama", "exaone4", "gemma3_text", "gpt_oss", "deepseek_v3", "glm_moe_dsa", "llama4_text"})
    expect_no_difference({.family = family, .speculation = {.max_drafts = 6}},
                         {.max_new_tokens = 60});
}

TEST(Speculation, ChangesNoSampledToken) {
  expect_no_difference({.speculation = {.max_drafts = 5, .min_ngram = 1}},
                       {.max_new_tokens = 50,
                        .sampling = {.temperature = 0.7, .top_k = 12, .top_p = 0.9, .seed = 11}});
  expect_no_difference({.speculation = {.max_drafts = 5, .min_ngram = 1}},
                       {.max_new_tokens = 50, .sampling = {.repetition_penalty = 1.1}}, false);
}

TEST(Speculation, EndsWhereDecodingEnds) {
  for (std::int64_t limit : {0, 1, 2, 3, 7}) {
    const auto session = open({.speculation = {.max_drafts = 8}});
    ASSERT_TRUE(session);
    const auto done = generate(session->engine(), {repetitive(60, 0)}, {.max_new_tokens = limit});
    EXPECT_EQ(done[0].num_generated(), limit);
  }
  // The context ends first; and a stop token in the midst of drafts that hold.
  expect_no_difference({.speculation = {.max_drafts = 8}}, {.max_new_tokens = 500});
  const auto plain = open({});
  ASSERT_TRUE(plain);
  const auto longer = generate(plain->engine(), {repetitive(60, 0)}, {.max_new_tokens = 40});
  const std::int32_t stop = longer[0].tokens[85];
  expect_no_difference({.speculation = {.max_drafts = 8}},
                       {.max_new_tokens = 60, .stop_tokens = {stop}});
}

TEST(Speculation, BitsAreThoseOfDecodingWhereNeighboursDoNotMatter) {
  expect_no_difference({.speculation = {.max_drafts = 6}, .batch_invariant = true},
                       {.max_new_tokens = 60, .sampling = {.temperature = 1.0, .seed = 3}}, false);
  expect_no_difference(
      {.family = "gemma3_text", .speculation = {.max_drafts = 6}, .batch_invariant = true},
      {.max_new_tokens = 60});
}

constexpr const char* kHybrids[] = {"bamba",       "deepseek_v4", "falcon_h1",   "granitemoehybrid",
                                    "kimi_linear", "lfm2",        "lfm2_moe",    "mamba2",
                                    "minimax",     "nemotron_h",  "olmo_hybrid", "qwen3_5_text",
                                    "qwen3_next",  "zaya"};

TEST(Speculation, RecurrentStatesRollBackToWhatWasAccepted) {
  // An oracle whose guesses go wrong after 0, 1, 2, … tokens: every length is accepted at least
  // once, also right after one that left the states behind.
  for (const char* family : kHybrids) {
    const Tokens prompt = repetitive(45, 0);
    const RequestOptions request{.max_new_tokens = 60};
    const auto plain = open({.family = family});
    ASSERT_TRUE(plain);
    const Tokens expected = generate(plain->engine(), {prompt}, request)[0].tokens;

    Opening opening{.family = family, .speculation = {.max_drafts = 5}};
    std::int64_t right = 0;
    std::vector<bool> tried(6);
    opening.speculation.propose = [&](std::span<const std::int32_t> tokens, std::int64_t limit,
                                      Tokens& drafts) {
      for (std::int64_t i = 0; i < limit; ++i) {
        const std::int32_t next = expected[tokens.size() + static_cast<std::size_t>(i)];
        drafts.push_back(i < right ? next : next == 7 ? 8 : 7);
      }
      tried[static_cast<std::size_t>(std::min(right, limit))] = true;
      right = (right + 1) % 6;
    };
    const auto session = open(opening);
    ASSERT_TRUE(session);
    EXPECT_EQ(generate(session->engine(), {prompt}, request)[0].tokens, expected) << family;
    for (std::size_t n = 0; n < tried.size(); ++n)
      EXPECT_TRUE(tried[n]) << family << " accepted " << n;
  }
}

TEST(Speculation, ChangesNoTokenOfAHybrid) {
  for (const char* family : kHybrids)
    expect_no_difference({.family = family, .speculation = {.max_drafts = 6, .min_ngram = 1}},
                         {.max_new_tokens = 40}, false);
}

TEST(Speculation, OneBatchOfDraftsGivesTheSameTokens) {
  for (const char* family : {"llama", "exaone4", "deepseek_v3", "qwen3_next"})
    expect_no_difference(
        {.family = family, .speculation = {.max_drafts = 6, .verify_as_decodes = false}},
        {.max_new_tokens = 60}, false);
}

TEST(Speculation, ATightPoolDropsDraftsBeforeItPreempts) {
  Opening opening{.speculation = {.max_drafts = 8}, .pool_tokens = 256, .max_batch = 4};
  expect_no_difference(opening, {.max_new_tokens = 40});
}

TEST(Speculation, GoesWithSharedPrefixes) {
  for (const bool batch_invariant : {false, true}) {
    for (const char* family : {"llama", "gemma3_text", "qwen3_next"}) {
      const std::vector<Tokens> prompts{repetitive(70, 0), repetitive(70, 0), repetitive(130, 0)};
      const RequestOptions options{.max_new_tokens = 40};
      const auto plain = open({.family = family, .batch_invariant = batch_invariant});
      const auto session = open({.family = family,
                                 .speculation = {.max_drafts = 6},
                                 .batch_invariant = batch_invariant,
                                 .share_prefixes = true});
      ASSERT_TRUE(plain && session);
      const auto expected = generate(plain->engine(), prompts, options);
      for (int round = 0; round < 3; ++round) {
        const auto have = generate(session->engine(), prompts, options);
        for (std::size_t i = 0; i < prompts.size(); ++i)
          EXPECT_EQ(have[i].tokens, expected[i].tokens) << family << ", request " << i;
      }
      EXPECT_GT(session->engine().statistics().num_accepted_drafts, 0) << family;
      EXPECT_GT(session->engine().statistics().cached_tokens, 0) << family;
    }
  }
}

}  // namespace
}  // namespace attune::runtime
