#include "runtime/scheduler.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace attune::runtime {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  void build(const SchedulerOptions& options, std::vector<CacheGroup> groups,
             std::vector<std::int32_t> pages, std::int32_t page_size) {
    groups_ = std::move(groups);
    for (std::int32_t n : pages) pools_.emplace_back(n, page_size);
    scheduler_ = std::make_unique<Scheduler>(options, groups_, pools_);
  }

  Request& submit(std::int64_t prompt) {
    auto request = std::make_unique<Request>();
    request->id = RequestId{static_cast<std::int64_t>(requests_.size())};
    request->tokens.assign(static_cast<std::size_t>(prompt), 1);
    request->prompt_len = prompt;
    scheduler_->submit(*request);
    requests_.push_back(std::move(request));
    return *requests_.back();
  }

  /// Runs one step: tokens enter the cache, completed rows grow by one token.
  std::vector<ScheduledRow> step() {
    const std::vector<ScheduledRow> rows = scheduler_->schedule();
    for (const ScheduledRow& row : rows) {
      const bool completes = row.completes();
      scheduler_->advance(row);
      if (completes) row.request->tokens.push_back(1);
    }
    return rows;
  }

  std::vector<CacheGroup> groups_;
  std::vector<PagePool> pools_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::unique_ptr<Scheduler> scheduler_;
};

CacheGroup full() { return {}; }
CacheGroup window(std::int64_t left) {
  return {.rule = {.causal = true, .window_left = left}, .attention_groups = {}, .layers = {}};
}

TEST_F(SchedulerTest, CutsPromptsIntoChunksAndThenDecodes) {
  build({.chunk_size = 8, .max_batch = 4}, {full()}, {100}, 4);
  Request& request = submit(19);
  std::vector<std::int64_t> counts;
  for (int i = 0; i < 5; ++i) {
    const auto rows = step();
    ASSERT_EQ(rows.size(), 1u);
    counts.push_back(rows[0].count);
  }
  EXPECT_EQ(counts, (std::vector<std::int64_t>{8, 8, 3, 1, 1}));
  EXPECT_EQ(request.num_generated(), 3);
}

TEST_F(SchedulerTest, RequestsJoinBetweenStepsAndDecodesGoFirst) {
  build({.chunk_size = 4, .max_batch = 4}, {full()}, {100}, 4);
  Request& first = submit(3);
  step();
  Request& second = submit(6);
  const auto rows = step();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].request, &first);
  EXPECT_TRUE(rows[0].decode);
  EXPECT_EQ(rows[1].request, &second);
  EXPECT_EQ(rows[1].count, 4);
  scheduler_->remove(first);
  EXPECT_EQ(step().size(), 1u);
  scheduler_->remove(second);
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_EQ(pools_[0].num_held(), 0);
}

TEST_F(SchedulerTest, WaitsForPagesInOrderOfArrival) {
  build({.chunk_size = 64, .max_batch = 4}, {full()}, {4}, 4);
  Request& first = submit(14);
  Request& second = submit(4);
  EXPECT_EQ(step().size(), 1u);
  scheduler_->remove(first);
  const auto rows = step();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].request, &second);
}

TEST_F(SchedulerTest, PreemptsTheYoungestAndLetsItStartOver) {
  build({.chunk_size = 64, .max_batch = 4}, {full()}, {4}, 4);
  Request& old = submit(8);
  Request& young = submit(7);
  step();
  ASSERT_EQ(scheduler_->num_running(), 2);
  step();  // the old request needs a fifth page
  EXPECT_EQ(scheduler_->num_preemptions(), 1);
  EXPECT_EQ(young.computed, 0);
  EXPECT_EQ(young.num_generated(), 1) << "what was generated is kept and computed again";
  EXPECT_GT(old.computed, 8);
  scheduler_->remove(old);
  const auto rows = step();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].count, 8);
}

TEST_F(SchedulerTest, SaysSoWhenARequestCanNeverFit) {
  build({.chunk_size = 64, .max_batch = 4}, {full()}, {2}, 4);
  Request& request = submit(9);
  EXPECT_TRUE(step().empty());
  EXPECT_EQ(request.finish_reason, FinishReason::failed);
  EXPECT_EQ(request.failure.code(), StatusCode::out_of_pages);
  EXPECT_EQ(request.failure.text(),
            "request 0 needs 3 more pages of 4 tokens for 9 tokens, and the pool has 2 of 2 free");
}

TEST_F(SchedulerTest, FailsTheLastRequestThatOutgrowsThePool) {
  build({.chunk_size = 64, .max_batch = 4}, {full()}, {2}, 4);
  Request& request = submit(8);
  step();
  EXPECT_TRUE(step().empty());
  EXPECT_EQ(request.finish_reason, FinishReason::failed);
  scheduler_->remove(request);
  EXPECT_EQ(pools_[0].num_held(), 0);
}

TEST_F(SchedulerTest, AWindowedLayerHoldsNoMoreOfALongContext) {
  constexpr std::int64_t kChunk = 16;
  const std::vector<CacheGroup> groups{full(), window(31)};
  build({.chunk_size = kChunk, .max_batch = 1}, groups, {1000, 100}, 4);
  Request& request = submit(1000);
  const std::int64_t bound = max_pages_per_request(groups[1], 1 << 20, kChunk, 4);
  std::int32_t most = 0;
  while (request.num_tokens() < 1200) {
    step();
    most = std::max(most, pools_[1].num_held());
  }
  EXPECT_LE(most, bound);
  EXPECT_LE(bound, (32 + kChunk) / 4 + 1);
  EXPECT_EQ(pools_[0].num_held(), 300);
}

TEST(CacheGroups, SharesPoolsByLifetime) {
  std::vector<model::AttentionGroup> groups(4);
  for (int i = 0; i < 4; ++i) groups[static_cast<std::size_t>(i)].layers = {i};
  groups[0].spec.window_left = 7;
  groups[2].spec.window_left = 7;
  groups[3].spec.attention_chunk = 16;
  const auto found = cache_groups(groups);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_FALSE(found[0].bounded());
  EXPECT_EQ(found[0].layers, (std::vector<int>{1}));
  EXPECT_EQ(found[1].layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(found[2].rule.attention_chunk, 16);
}

TEST_F(SchedulerTest, DraftsRideAlongAndGiveTheirPagesBack) {
  build({.chunk_size = 8, .max_batch = 4}, {full()}, {8}, 4);
  Request& request = submit(4);
  step();
  request.drafts = {1, 1, 1, 1, 1};
  const auto rows = scheduler_->schedule();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].part(), StepPart::verify);
  EXPECT_EQ(rows[0].num_rows(), 6);
  EXPECT_TRUE(rows[0].completes());
  EXPECT_EQ(pools_[0].num_held(), 3);
  scheduler_->advance(rows[0], 2);
  EXPECT_EQ(request.computed, 7);
  EXPECT_EQ(pools_[0].num_held(), 2);
}

TEST_F(SchedulerTest, DraftsWithoutPagesAreLeftOut) {
  build({.chunk_size = 8, .max_batch = 4}, {full()}, {4}, 4);
  Request& older = submit(4);
  submit(4);
  step();
  older.drafts = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto rows = scheduler_->schedule();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].part(), StepPart::decode);
  EXPECT_EQ(rows[0].drafts, 0);
  EXPECT_EQ(scheduler_->num_preemptions(), 0);
}

TEST_F(SchedulerTest, WhatRecurrentStatesLagBehindGoesAgain) {
  build({.chunk_size = 8, .max_batch = 4}, {full()}, {8}, 4);
  Request& request = submit(4);
  step();
  request.drafts = {1, 1, 1};
  const auto verified = scheduler_->schedule();
  request.tokens.insert(request.tokens.end(), 3, 1);  // two drafts and the token behind them
  scheduler_->advance(verified[0], 0);
  request.lag = 2;
  request.drafts.clear();
  EXPECT_TRUE(request.decoding());
  const auto rows = scheduler_->schedule();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].count, 3);
  EXPECT_EQ(rows[0].part(), StepPart::verify);
  EXPECT_TRUE(rows[0].completes());
  scheduler_->advance(rows[0]);
  EXPECT_EQ(request.lag, 0);
  EXPECT_EQ(request.computed, 8);
}

}  // namespace
}  // namespace attune::runtime
