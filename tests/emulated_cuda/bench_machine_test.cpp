// The benchmark's GPU on the emulated card: what fill writes, how often time runs, what it refuses.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "bench/cuda_machine_entry.hpp"

extern "C" void attune_bench_machine_v1(
    const attune::DeviceInfo& device,
    attune::Result<std::unique_ptr<attune::bench::Machine>>& made);

namespace attune::bench {
namespace {

std::unique_ptr<Machine> card() {
  Result<std::unique_ptr<Machine>> made(internal_error("nothing made"));
  attune_bench_machine_v1({.kind = DeviceKind::cuda, .sm = 90}, made);
  EXPECT_TRUE(made.ok());
  return made.ok() ? std::move(*made) : nullptr;
}

TEST(CudaMachine, FillRepeatsThePatternAndCutsTheLast) {
  const auto machine = card();
  ASSERT_NE(machine, nullptr);
  std::vector<unsigned char> pattern(7);
  std::iota(pattern.begin(), pattern.end(), static_cast<unsigned char>(1));
  for (const std::size_t bytes :
       {std::size_t{3}, std::size_t{7}, std::size_t{64}, std::size_t{1000}}) {
    auto memory = machine->allocate(bytes + 1);
    ASSERT_TRUE(memory.ok());
    auto* const data = static_cast<unsigned char*>(memory->get());
    data[bytes] = 99;
    ASSERT_TRUE(machine->fill(data, bytes, pattern.data(), pattern.size()).ok());
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], pattern[i % 7]) << bytes << " " << i;
    EXPECT_EQ(data[bytes], 99);
  }
}

TEST(CudaMachine, TimesAsOftenAsItIsToldAndPassesErrorsOn) {
  const auto machine = card();
  ASSERT_NE(machine, nullptr);
  int runs = 0;
  const auto seconds = machine->time(
      [&](Stream) -> Status {
        ++runs;
        return {};
      },
      {.min_repeats = 2, .max_repeats = 3, .max_seconds = 100.0});
  ASSERT_TRUE(seconds.ok()) << seconds.status().text();
  EXPECT_EQ(seconds->size(), 3u);
  EXPECT_EQ(runs, 3);
  const auto failed =
      machine->time([](Stream) { return invalid_argument("no"); }, {.min_repeats = 1});
  EXPECT_EQ(failed.status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace attune::bench
