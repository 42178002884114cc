#include "bench/ceilings.hpp"

#include <gtest/gtest.h>

#include "device/thread_pool.hpp"

namespace attune::bench {
namespace {

TEST(Ceilings, WiderInstructionsAreNotSlower) {
  auto pool = device::ThreadPool::make({.num_threads = 1});
  ASSERT_TRUE(pool.ok());
  const CpuIsa here = cpu_device().isa;
  const double scalar = product_rate(**pool, CpuIsa::scalar, DType::f32, 2).rate;
  const double best = product_rate(**pool, here, DType::bf16, 2).rate;
  EXPECT_GT(scalar, 1e7);
  EXPECT_GE(best, 0.8 * scalar);
}

TEST(Ceilings, ReadsAtEveryLevel) {
  auto pool = device::ThreadPool::make({.num_threads = 2});
  ASSERT_TRUE(pool.ok());
  for (int isa = 0; isa <= static_cast<int>(cpu_device().isa); ++isa) {
    const Ceiling read = read_bandwidth(**pool, static_cast<CpuIsa>(isa), 3 << 20, 1);
    EXPECT_GT(read.rate, 1e8);
    EXPECT_FALSE(read.how.empty());
  }
}

}  // namespace
}  // namespace attune::bench
