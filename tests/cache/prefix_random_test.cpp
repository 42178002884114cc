// A million random operations on prefix caches of every kind, each answer held against a
// dictionary's.
#include <gtest/gtest.h>

#include <random>

#include "prefix_machine.hpp"

namespace attune::testing {
namespace {

void run(const MachineSetup& setup, int steps, std::uint32_t seed) {
  std::mt19937 random(seed);
  PrefixMachine machine(setup, [&](std::uint32_t n) { return random() % n; });
  for (int i = 0; i < steps; ++i) {
    const std::string error = machine.step();
    ASSERT_EQ(error, "") << "step " << i;
    if (i % 101 != 0) continue;
    const Status sound = machine.check();
    ASSERT_TRUE(sound.ok()) << sound.text() << " at step " << i;
  }
  EXPECT_GT(machine.metrics().hits, steps / 20);
  EXPECT_GT(machine.metrics().evicted_pages, steps / 10);
  EXPECT_EQ(machine.drain(), "");
  EXPECT_TRUE(machine.check().ok());
}

TEST(PrefixCacheRandom, OnePoolLeastRecentlyUsed) { run({}, 300'000, 1); }

TEST(PrefixCacheRandom, LeastFrequentlyUsedWithPartialPages) {
  run({.page_size = 3, .policy = EvictionPolicy::lfu, .partial_pages = true}, 150'000, 2);
}

TEST(PrefixCacheRandom, PriorityAndPagesOfOneToken) {
  run({.page_size = 1, .num_pages = {60}, .policy = EvictionPolicy::priority}, 100'000, 3);
}

TEST(PrefixCacheRandom, AWindowBesideFullAttention) {
  run({.windows = {-1, 5}, .num_pages = {60, 40}}, 150'000, 4);
}

TEST(PrefixCacheRandom, WindowsOnly) {
  run({.windows = {3, 8}, .num_pages = {40, 50}}, 150'000, 5);
}

TEST(PrefixCacheRandom, HitsAtMultiplesOfAGranule) {
  run({.windows = {-1, 5}, .num_pages = {60, 40}, .granule = 4}, 75'000, 6);
}

TEST(PrefixCacheRandom, CheckpointsAtNodes) {
  run({.windows = {-1, 5}, .num_pages = {60, 40}, .checkpoints = true}, 75'000, 7);
}

}  // namespace
}  // namespace attune::testing
