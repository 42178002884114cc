#include "device/thread_pool.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace attune::device {
namespace {

std::unique_ptr<ThreadPool> make_pool(int num_threads, int spin_rounds = 200, bool pinned = false) {
  auto pool =
      ThreadPool::make({.num_threads = num_threads, .pinned = pinned, .spin_rounds = spin_rounds});
  EXPECT_TRUE(pool.ok()) << pool.status().text();
  return std::move(pool).value();
}

struct Counts {
  std::vector<int> visits;  // one slot an item: plain ints, so that a race is a race
  std::atomic<int> bad_threads{0};
  int num_threads = 0;

  static void body(void* context, std::int64_t item, int thread) {
    auto& self = *static_cast<Counts*>(context);
    self.visits[static_cast<std::size_t>(item)] += 1;
    if (thread < 0 || thread >= self.num_threads) self.bad_threads.fetch_add(1);
  }
};

TEST(ThreadPool, RunsEveryItemOnce) {
  for (int threads : {1, 2, 3, 8}) {
    for (int spin : {0, 500}) {
      auto pool = make_pool(threads, spin);
      EXPECT_EQ(pool->num_threads(), threads);
      for (std::int64_t items : {0, 1, 2, 7, 1000}) {
        Counts counts{.visits = std::vector<int>(static_cast<std::size_t>(items)),
                      .num_threads = threads};
        pool->run(items, &Counts::body, &counts);
        for (int visits : counts.visits) EXPECT_EQ(visits, 1);
        EXPECT_EQ(counts.bad_threads.load(), 0);
      }
    }
  }
}

TEST(ThreadPool, ManyShortRunsInARow) {
  // Late wakers of one run meet the next ones here.
  auto pool = make_pool(4, 0);
  Counts counts{.visits = std::vector<int>(5), .num_threads = 4};
  for (int i = 0; i < 3000; ++i) pool->run(5, &Counts::body, &counts);
  for (int visits : counts.visits) EXPECT_EQ(visits, 3000);
}

TEST(ThreadPool, SurvivesSleep) {
  auto pool = make_pool(2, 0);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Counts counts{.visits = std::vector<int>(64), .num_threads = 2};
    pool->run(64, &Counts::body, &counts);
    for (int visits : counts.visits) EXPECT_EQ(visits, 1);
  }
}

TEST(ThreadPool, ServesCallersOneAfterTheOther) {
  auto pool = make_pool(3);
  std::vector<std::thread> callers;
  std::array<Counts, 3> counts;
  for (Counts& mine : counts) {
    mine.visits.resize(11);
    mine.num_threads = 3;
    callers.emplace_back([&pool, &mine] {
      for (int i = 0; i < 200; ++i) pool->run(11, &Counts::body, &mine);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const Counts& mine : counts)
    for (int visits : mine.visits) EXPECT_EQ(visits, 200);
}

TEST(ThreadPool, PinnedPoolWorks) {
  auto pool = make_pool(2, 100, true);
  Counts counts{.visits = std::vector<int>(100), .num_threads = 2};
  pool->run(100, &Counts::body, &counts);
  for (int visits : counts.visits) EXPECT_EQ(visits, 1);
}

TEST(ThreadPool, RefusesNoThreads) {
  for (int threads : {0, -3}) {
    const auto pool = ThreadPool::make({.num_threads = threads});
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.status().code(), StatusCode::invalid_argument);
  }
}

}  // namespace
}  // namespace attune::device
