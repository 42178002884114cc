// The host as a machine for cases, and a case timed on it.
#include "bench/machine.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include <attune/registry.hpp>

#include "bench/runner.hpp"
#include "bench/suite.hpp"
#include "device/thread_pool.hpp"

namespace attune::bench {
namespace {

TEST(HostMachine, FillRepeatsThePatternAndCutsTheLast) {
  auto pool = device::ThreadPool::make({.num_threads = 2});
  ASSERT_TRUE(pool.ok());
  const auto machine = host_machine(**pool, cpu_device().isa);
  const std::vector<char> pattern{1, 2, 3};
  auto memory = machine->allocate(11);
  ASSERT_TRUE(memory.ok());
  auto* const data = static_cast<char*>(memory->get());
  data[10] = 99;
  ASSERT_TRUE(machine->fill(data, 10, pattern.data(), pattern.size()).ok());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(data[i], 1 + i % 3);
  EXPECT_EQ(data[10], 99);
}

TEST(HostMachine, RunsUntilEitherLimit) {
  EXPECT_TRUE(another_run({.min_repeats = 3, .max_repeats = 5, .max_seconds = 1.0}, 2, 9.0));
  EXPECT_FALSE(another_run({.min_repeats = 3, .max_repeats = 5, .max_seconds = 1.0}, 3, 9.0));
  EXPECT_TRUE(another_run({.min_repeats = 3, .max_repeats = 5, .max_seconds = 1.0}, 4, 0.5));
  EXPECT_FALSE(another_run({.min_repeats = 3, .max_repeats = 5, .max_seconds = 1.0}, 5, 0.5));
}

TEST(RunCase, TimesEveryKindOfArray) {
  auto pool = device::ThreadPool::make({.num_threads = 2});
  ASSERT_TRUE(pool.ok());
  const auto machine = host_machine(**pool, cpu_device().isa);
  const Result<Registry> registry = Registry::open({});
  ASSERT_TRUE(registry.ok());
  const Ceilings ceilings{.bytes_per_s = 1e10, .bf16_flops = 1e11, .f32_flops = 1e11};
  for (const char* name :
       {"gqa/decode/bf16/hd64/gqa2/page16/b2x48", "gqa/prefill/fp32/hd64/gqa2/page16/b1x33",
        "gqa/decode/int8/hd64/gqa2/page16/b2x48", "gqa/decode/bf16/hd64/gqa2/page16/b2x48+32",
        "mla/decode/bf16/hd576/gqa4/page16/b1x40"}) {
    const Result<Case> c = parse_case(name);
    ASSERT_TRUE(c.ok()) << name;
    const Result<Row> row = run_case(*registry, "cpu", *c, cpu_device(), *machine, ceilings,
                                     {.min_repeats = 1, .max_repeats = 1});
    ASSERT_TRUE(row.ok()) << name << ": " << row.status().text();
    EXPECT_GT(row->ms, 0.0);
    EXPECT_TRUE(std::isfinite(row->percent_of_ceiling));
  }
}

TEST(Suites, HaveCasesForEveryKindOfDevice) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda})
    for (const char* name : {"prefill", "decode", "mla", "linear", "cascade", "sparse", "all"}) {
      const auto cases = suite(name, kind);
      ASSERT_TRUE(cases.ok()) << cases.status().text();
      EXPECT_FALSE(cases->empty());
    }
  EXPECT_TRUE(suite("growth", DeviceKind::cpu).ok());
  EXPECT_EQ(suite("fast", DeviceKind::cpu).status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace attune::bench
