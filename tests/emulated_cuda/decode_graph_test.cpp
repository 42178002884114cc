// Decode steps recorded and replayed, through the whole engine on the emulated card: the same bits
// as steps that are issued, whatever joins, leaves, gives way or grows meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <attune/device.hpp>
#include <attune/registry.hpp>

#include "runtime/session.hpp"

namespace attune::runtime {
namespace {

struct Course {
  std::string family = "qwen3";
  std::string backend = "triton";
  std::int64_t pool_tokens = 4096;
  SpeculationOptions speculation{};
  bool wants_logits = true;  ///< where nothing is guessed; otherwise the card chooses the tokens
  bool samples = false;      ///< each request by other rules, the third with a penalty
};

struct Outcome {
  std::vector<Request> requests;
  EngineStatistics statistics;
  std::vector<char> keys;  ///< all pages of all layers, as the last step left them
};

/// The emulated card's memory is the host's.
std::vector<std::span<char>> pages_of(const cache::KvStorage& kv) {
  std::vector<std::span<char>> pages;
  for (std::size_t layer = 0; layer < kv.num_layers(); ++layer)
    for (const TensorView* view : {&kv.k(layer), &kv.v(layer)})
      if (view->defined())
        pages.emplace_back(
            static_cast<char*>(view->data),
            static_cast<std::size_t>(view->shape[0] * view->stride[0]) * size_of(view->dtype));
  return pages;
}

std::vector<char> keys_of(const cache::KvStorage& kv) {
  std::vector<char> keys;
  for (const std::span<char> pages : pages_of(kv))
    keys.insert(keys.end(), pages.begin(), pages.end());
  return keys;
}

std::unique_ptr<Session> open(const Course& course, bool record) {
  auto checkpoint = model::open_checkpoint(std::string(ATTUNE_SOURCE_DIR) +
                                           "/tests/golden/models/" + course.family);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().text();
  const Result<Registry> registry = Registry::open({});
  EXPECT_TRUE(registry.ok());
  const Result<DeviceInfo> card = parse_device("cuda:0");
  EXPECT_TRUE(card.ok()) << card.status().text();
  SessionOptions options;
  options.device = *card;
  options.engine = {.context_limit = 160,
                    .pool_tokens = course.pool_tokens,
                    .scheduler = {.chunk_size = 32, .max_batch = 6},
                    .speculation = course.speculation,
                    .keep_logits = true,
                    .record_decodes = record};
  const auto make = [&](const model::ModelConfig& config, Executor& executor,
                        std::optional<DType>) {
    BackendRequest request;
    request.device = *card;
    request.selection.prefill = request.selection.decode = course.backend;
    request.selection.page_size = 16;
    request.dtypes = {.compute = DType::bf16, .kv = DType::bf16, .linear = DType::bf16};
    return make_backends(*registry, config, request, executor);
  };
  auto session = Session::open(std::move(*checkpoint), make, options);
  EXPECT_TRUE(session.ok()) << session.status().text();
  return session.ok() ? std::move(*session) : nullptr;
}

std::vector<std::int32_t> prompt(std::size_t length, std::int32_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < length; ++i)
    tokens.push_back(3 + (seed * 31 + static_cast<std::int32_t>(i) * 17) % 90);
  return tokens;
}

/// Five requests of several lengths, two of which arrive late.
Outcome run(const Course& course, bool record) {
  const auto session = open(course, record);
  if (!session) return {};
  Engine& engine = session->engine();
  for (const std::span<char> pages : pages_of(engine.kv())) std::ranges::fill(pages, char{0});
  std::vector<RequestId> ids;
  const SamplingOptions rules[] = {
      {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 11},
      {.temperature = 1.3, .min_p = 0.02, .seed = 12},
      {.temperature = 1.0, .top_p = 0.8, .repetition_penalty = 1.2, .seed = 13},
      {.temperature = 5.0, .seed = 14},
      {}};
  const auto submit = [&](std::size_t length, std::int64_t new_tokens) {
    const auto id =
        engine.submit(prompt(length, static_cast<std::int32_t>(ids.size())),
                      {.max_new_tokens = new_tokens,
                       .sampling = course.samples ? rules[ids.size()] : SamplingOptions{},
                       .want_logits = course.wants_logits && !course.speculation.enabled()});
    ASSERT_TRUE(id.ok()) << id.status().text();
    ids.push_back(*id);
  };
  const auto step = [&] {
    const auto events = engine.step();
    ASSERT_TRUE(events.ok()) << events.status().text();
  };
  submit(5, 24);
  submit(30, 9);
  submit(17, 12);
  for (int i = 0; i < 8; ++i) step();
  submit(3, 10);
  submit(11, 20);
  while (!engine.idle()) step();
  Outcome outcome{.requests = {}, .statistics = engine.statistics(), .keys = keys_of(engine.kv())};
  for (RequestId id : ids) outcome.requests.push_back(engine.take(id));
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.requests.size(), b.requests.size());
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    EXPECT_EQ(a.requests[i].tokens, b.requests[i].tokens);
    ASSERT_EQ(a.requests[i].logits.size(), b.requests[i].logits.size());
    EXPECT_EQ(std::memcmp(a.requests[i].logits.data(), b.requests[i].logits.data(),
                          a.requests[i].logits.size() * sizeof(float)),
              0)
        << "request " << i;
  }
  // A layer's keys follow from the bits of all layers below, tokens alone do not.
  EXPECT_TRUE(a.keys == b.keys);
}

void expect_replayed(const Course& course) {
  const Outcome recorded = run(course, true);
  const Outcome issued = run(course, false);
  ASSERT_FALSE(recorded.requests.empty());
  expect_same(recorded, issued);
  EXPECT_EQ(recorded.statistics.graphs.refusal, "");
  EXPECT_GT(recorded.statistics.graphs.recorded, 1);
  EXPECT_GT(recorded.statistics.graphs.replayed, recorded.statistics.graphs.recorded);
  EXPECT_EQ(issued.statistics.graphs.replayed, 0);
  EXPECT_EQ(issued.statistics.graphs.issued,
            recorded.statistics.graphs.issued + recorded.statistics.graphs.replayed);
}

/// Guesses what the requests of `known` went on with, wrong now and then.
Propose oracle(const Outcome& known) {
  return [&known](std::span<const std::int32_t> tokens, std::int64_t limit,
                  std::vector<std::int32_t>& drafts) {
    drafts.clear();
    for (const Request& request : known.requests) {
      if (request.tokens.size() < tokens.size() ||
          !std::equal(tokens.begin(), tokens.end(), request.tokens.begin()))
        continue;
      for (std::size_t i = tokens.size(); i < request.tokens.size(); ++i) {
        if (static_cast<std::int64_t>(drafts.size()) == limit) return;
        drafts.push_back(i % 5 == 0 ? 0 : request.tokens[i]);
      }
      return;
    }
  };
}

TEST(DecodeGraph, ReplaysGiveTheBitsOfIssuedSteps) { expect_replayed({}); }

TEST(DecodeGraph, TheCardChoosesTheTokensThatTheHostWould) {
  const Outcome by_host = run({}, true);
  const Outcome by_card = run({.wants_logits = false}, true);
  ASSERT_EQ(by_card.requests.size(), by_host.requests.size());
  for (std::size_t i = 0; i < by_host.requests.size(); ++i) {
    EXPECT_EQ(by_card.requests[i].tokens, by_host.requests[i].tokens) << i;
    EXPECT_TRUE(by_card.requests[i].logits.empty());
  }
}

TEST(DecodeGraph, TheCardSamplesTheTokensThatTheHostWould) {
  const Outcome greedy = run({}, true);
  const Outcome by_host = run({.samples = true}, true);
  const Outcome by_card = run({.wants_logits = false, .samples = true}, true);
  ASSERT_EQ(by_card.requests.size(), by_host.requests.size());
  for (std::size_t i = 0; i < by_host.requests.size(); ++i) {
    EXPECT_EQ(by_card.requests[i].tokens, by_host.requests[i].tokens) << i;
    EXPECT_EQ(by_card.requests[i].tokens == greedy.requests[i].tokens, i == 4) << i;
  }
  EXPECT_GT(by_card.statistics.graphs.replayed, 0);
  // A draw belongs to its position: drafts that are accepted leave the text as it is.
  const Outcome guessed =
      run({.speculation = {.max_drafts = 4, .propose = oracle(by_card)}, .samples = true}, true);
  for (std::size_t i = 0; i < by_host.requests.size(); ++i)
    EXPECT_EQ(guessed.requests[i].tokens, by_host.requests[i].tokens) << i;
  EXPECT_GT(guessed.statistics.num_accepted_drafts, 0);
}

TEST(DecodeGraph, ExpertsAndSinksAreReplayed) { expect_replayed({.family = "gpt_oss"}); }

TEST(DecodeGraph, WindowsMoveUnderARecording) { expect_replayed({.family = "gemma3_text"}); }

TEST(DecodeGraph, RecurrentStatesStayWhereTheyAre) {
  expect_replayed({.family = "mamba2", .backend = "mamba2"});
}

TEST(DecodeGraph, RequestsGiveWayAndStartOver) {
  const Course course{.pool_tokens = 80};
  expect_replayed(course);
  EXPECT_GT(run(course, true).statistics.num_preemptions, 0);
}

TEST(DecodeGraph, DraftsAreReplayedAmongDecodes) {
  const Outcome plain = run({}, false);
  const Course course{.speculation = {.max_drafts = 4, .propose = oracle(plain)}};
  const Outcome recorded = run(course, true);
  const Outcome issued = run(course, false);
  expect_same(recorded, issued);
  for (std::size_t i = 0; i < plain.requests.size(); ++i)
    EXPECT_EQ(recorded.requests[i].tokens, plain.requests[i].tokens) << "request " << i;
  EXPECT_GT(recorded.statistics.num_accepted_drafts, 0);
  EXPECT_LT(recorded.statistics.num_accepted_drafts, recorded.statistics.num_drafts);
  EXPECT_LT(recorded.statistics.num_steps, plain.statistics.num_steps);
  EXPECT_EQ(recorded.statistics.graphs.refusal, "");
  EXPECT_GT(recorded.statistics.graphs.replayed, 0);
}

class DraftsBesideStates : public testing::TestWithParam<const char*> {};

/// States before and behind drafts lie in slots that change roles, and requests that accept some of
/// their drafts bring these along in the next step: a replay finds it all in its arrays.
TEST_P(DraftsBesideStates, AreReplayed) {
  const Outcome plain = run({.family = GetParam()}, true);
  const Course course{.family = GetParam(),
                      .speculation = {.max_drafts = 4, .propose = oracle(plain)}};
  const Outcome guessed = run(course, true);
  const Outcome issued = run(course, false);
  expect_same(guessed, issued);
  for (std::size_t i = 0; i < plain.requests.size(); ++i)
    EXPECT_EQ(guessed.requests[i].tokens, plain.requests[i].tokens) << i;
  EXPECT_GT(guessed.statistics.num_accepted_drafts, 0);
  EXPECT_LT(guessed.statistics.num_accepted_drafts, guessed.statistics.num_drafts);
  EXPECT_LT(guessed.statistics.num_steps, plain.statistics.num_steps);
  EXPECT_EQ(guessed.statistics.graphs.refusal, "");
  EXPECT_GT(guessed.statistics.graphs.replayed, 0);
  EXPECT_EQ(issued.statistics.graphs.replayed, 0);
  // Nothing but prompts keeps a step from its recording.
  EXPECT_EQ(issued.statistics.graphs.issued,
            guessed.statistics.graphs.issued + guessed.statistics.graphs.replayed);
}

INSTANTIATE_TEST_SUITE_P(DecodeGraph, DraftsBesideStates,
                         testing::Values("qwen3_next", "kimi_linear", "falcon_h1", "zaya",
                                         "minimax"),
                         [](const auto& test) { return std::string(test.param); });

TEST(DecodeGraph, ARequestThatDoublesIsPlannedAnew) {
  const Outcome outcome = run({}, true);
  EXPECT_GT(outcome.statistics.replanning.count, 0);
  EXPECT_NE(outcome.statistics.replanning.last_reason, "");
}

}  // namespace
}  // namespace attune::runtime
