// Linear attention's Hopper kernels, planner and backend on emulated blocks, against the
// double-precision recurrence: lengths about the chunk's borders, batches of prompts, single tokens
// and padding, permuted slots, extreme gates, resumption anywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "linear_layer.hpp"
#include "machine.hpp"

namespace attune::backends::test {
namespace {

/// bf16 operands of the chunked products; the recurrence alone is fp32.
constexpr double kChunked = 1.5e-2;
constexpr double kRecurrent = 2e-5;
constexpr double kBf16Output = 4e-3;

void expect_close(const Shape& shape, DType activations, Gates gates, const Step& step,
                  double o_bound, double state_bound) {
  Both run(shape, activations, gates);
  for (std::int32_t slot : step.slots)
    if (slot >= 0) run.fill_slot(slot);
  run.go(step);
  EXPECT_LE(run.errors.o, o_bound);
  EXPECT_LE(run.errors.state, state_bound);
}

constexpr Shape kGdn{Variant::gdn, 1, 2, 128, 64, 4};
constexpr Shape kGdnOdd{Variant::gdn, 1, 1, 24, 41, 4};
constexpr Shape kKda{Variant::kda, 1, 1, 128, 32, 4};
constexpr Shape kKdaGrouped{Variant::kda, 1, 2, 20, 12, 3};
constexpr Shape kMamba{Variant::mamba2, 1, 2, 128, 64, 4};
constexpr Shape kMambaWide{Variant::mamba2, 1, 1, 200, 24, 4};
constexpr Shape kLightning{Variant::lightning, 1, 1, 128, 64, 0};
constexpr Shape kLightningOdd{Variant::lightning, 2, 2, 48, 80, 0};
constexpr Shape kAll[] = {kGdn,   kGdnOdd,    kKda,       kKdaGrouped,
                          kMamba, kMambaWide, kLightning, kLightningOdd};

class LinearOnHopper : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Families, LinearOnHopper, testing::ValuesIn(kAll),
                         [](const testing::TestParamInfo<Shape>& p) {
                           return std::string(name(p.param.variant)) + "_" +
                                  std::to_string(p.param.dk) + "x" + std::to_string(p.param.dv);
                         });

TEST_P(LinearOnHopper, TokenByToken) {
  for (int n : {0, 1, 3, 8, 30})
    expect_close(GetParam(), DType::f32, Gates::ordinary, {{n}, {2}}, kRecurrent, kRecurrent);
}

TEST_P(LinearOnHopper, Prompts) {
  for (int n : {9, 63, 64, 65, 200})
    expect_close(GetParam(), DType::bf16, Gates::ordinary, {{n}, {4}}, kChunked, kChunked);
}

TEST_P(LinearOnHopper, TokenByTokenInBf16) {
  expect_close(GetParam(), DType::bf16, Gates::ordinary, {{5}, {1}}, kBf16Output, kRecurrent);
}

TEST_P(LinearOnHopper, ExtremeGates) {
  for (Gates gates : {Gates::forgetful, Gates::retentive, Gates::bursting}) {
    expect_close(GetParam(), DType::f32, gates, {{40}, {0}}, kRecurrent, kRecurrent);
    expect_close(GetParam(), DType::bf16, gates, {{100}, {0}}, kChunked, kChunked);
  }
}

TEST_P(LinearOnHopper, MixedBatchesLeaveTheRestAlone) {
  expect_close(GetParam(), DType::bf16, Gates::ordinary,
               {{1, 70, 0, 2, 1, 9, 12}, {3, 6, 1, -1, 0, 5, -1}}, kChunked, kChunked);
}

TEST_P(LinearOnHopper, ResumesAnywhere) {
  Both run(GetParam(), DType::bf16, Gates::ordinary);
  run.fill_slot(5);
  run.fill_slot(2);
  for (int n : {1, 64, 2, 0, 20, 1, 67}) run.go({{n, 1}, {5, 2}});
  EXPECT_LE(run.errors.o, kChunked);
  EXPECT_LE(run.errors.state, kChunked);
}

TEST_P(LinearOnHopper, AnyOrderOfThreadsGivesTheSameBits) {
  const Step step{{70, 3}, {3, 1}};
  std::vector<std::vector<float>> states;
  for (const emulated::Rules rules :
       {emulated::Rules{emulated::Delivery::early, 0}, emulated::Rules{emulated::Delivery::late, 0},
        emulated::Rules{emulated::Delivery::late, 5},
        emulated::Rules{emulated::Delivery::early, 6}}) {
    emulated::rules() = rules;
    Both run(GetParam(), DType::bf16, Gates::ordinary);
    run.fill_slot(3);
    run.fill_slot(1);
    run.go(step);
    states.push_back({});
    for (float x : run.actual.state)
      if (!std::isnan(x)) states.back().push_back(x);
    for (std::int64_t i = 0; i < run.actual.tokens * run.actual.width; ++i)
      states.back().push_back(run.actual.o.get(i));
  }
  emulated::rules() = {};
  for (const std::vector<float>& other : states) EXPECT_EQ(other, states.front());
}

/// Enough (sequence, head) pairs for slices of 64, which read what slices of 32 read.
TEST(LinearOnHopperWide, ManyRequests) {
  Step step;
  for (int r = 0; r < 25; ++r) {
    step.lengths.push_back(9 + r % 3);
    step.slots.push_back((7 * r + 3) % 25);
  }
  step.lengths[4] = 130;
  for (const Shape& shape :
       {Shape{Variant::gdn, 2, 4, 128, 64, 4}, Shape{Variant::kda, 4, 4, 32, 64, 4},
        Shape{Variant::lightning, 4, 4, 128, 64, 0}, Shape{Variant::mamba2, 1, 4, 64, 50, 4}})
    expect_close(shape, DType::bf16, Gates::ordinary, step, kChunked, kChunked);
}

/// Rings of stages go round many times.
TEST(LinearOnHopperWide, OneLongRequest) {
  for (const Shape& shape :
       {Shape{Variant::gdn, 1, 1, 128, 64, 4}, Shape{Variant::kda, 1, 1, 64, 40, 4}})
    expect_close(shape, DType::bf16, Gates::ordinary, {{2100}, {3}}, kChunked, kChunked);
}

/// On eight SMs scores runs beside scan here, and takes the chunks of both in turn.
TEST(LinearOnHopperWide, TwoLongRequests) {
  for (const Shape& shape :
       {Shape{Variant::gdn, 2, 2, 128, 64, 4}, Shape{Variant::gdn, 1, 2, 100, 60, 4}})
    expect_close(shape, DType::bf16, Gates::ordinary, {{900, 1150}, {3, 1}}, kChunked, kChunked);
}

/// Enough rows of states, a token each, for blocks that stay.
TEST(LinearOnHopperWide, ManySingleTokens) {
  Step step;
  for (int r = 0; r < 30; ++r) {
    step.lengths.push_back(r == 9 ? 0 : 1);
    step.slots.push_back(r == 11 ? -1 : (7 * r + 3) % 30);
  }
  for (const Shape& shape :
       {Shape{Variant::gdn, 3, 9, 128, 128, 4}, Shape{Variant::kda, 9, 9, 128, 128, 3},
        Shape{Variant::mamba2, 1, 8, 128, 160, 4}})
    for (DType activations : {DType::bf16, DType::f32})
      expect_close(shape, activations, Gates::ordinary, step,
                   activations == DType::bf16 ? kBf16Output : kRecurrent, kRecurrent);
}

/// Enough (request, head) pairs for blocks of two and of four tiles of the state's rows.
TEST(LinearOnHopperWide, ManySteps) {
  Step step;
  for (int r = 0; r < 30; ++r) {
    step.lengths.push_back(r == 7 ? 3 : r == 9 ? 0 : 1);
    step.slots.push_back(r == 11 ? -1 : (7 * r + 3) % 30);
  }
  for (const Shape& shape :
       {Shape{Variant::gdn, 20, 40, 24, 41, 4}, Shape{Variant::kda, 20, 20, 16, 128, 4},
        Shape{Variant::mamba2, 1, 36, 20, 150, 3}})
    expect_close(shape, DType::bf16, Gates::ordinary, step, kBf16Output, kRecurrent);
}

TEST(LinearOnHopperSettings, SafeGatesAndNegativeEigenvalues) {
  for (Gates gates : {Gates::ordinary, Gates::forgetful, Gates::bursting}) {
    for (int n : {5, 90}) {
      Both kda(kKda, DType::bf16, gates);
      kda.actual.lower_bound = kda.expected.lower_bound = -5.0f;
      kda.fill_slot(0);
      kda.go({{n}, {0}});
      EXPECT_LE(kda.errors.o, kChunked);
      EXPECT_LE(kda.errors.state, kChunked);
      Both gdn(kGdn, DType::bf16, gates);
      gdn.actual.beta_scale = gdn.expected.beta_scale = 2.0f;
      gdn.fill_slot(0);
      gdn.go({{n}, {0}});
      EXPECT_LE(gdn.errors.o, kChunked);
      EXPECT_LE(gdn.errors.state, kChunked);
    }
  }
}

TEST(LinearOnHopperConvolution, AnyLengthTapsAndDtype) {
  for (int taps : {1, 2, 3, 4, 8})
    for (DType t : {DType::f32, DType::bf16})
      expect_close({Variant::short_conv, 0, 0, 150, 0, taps}, t, Gates::ordinary,
                   {{1, 0, 70, 2, 33, 1}, {4, 2, 0, 1, -1, -1}},
                   t == DType::f32 ? 1e-6 : kBf16Output, 0.0);
}

/// A captured decode step: the same plan, other requests in it, padding where there are fewer.
TEST(LinearOnHopperRefresh, NewSlotsAtTheSameAddresses) {
  Both run(kGdn, DType::f32, Gates::ordinary);
  for (std::int32_t slot : {0, 1, 2, 5}) run.fill_slot(slot);
  const Step first{{1, 1, 1}, {0, 5, 2}};
  const Step second{{1, 1, 1}, {1, -1, 5}};
  const std::size_t bytes =
      run.backend->workspace_size({.max_batch = 3, .max_qo_tokens = 3, .decode_only = true})
          .device_bytes;
  alignas(256) static std::uint8_t memory[4096];
  ASSERT_LE(bytes, sizeof(memory));
  auto plan = run.backend->plan(run.view_of(first), {.device = memory, .device_bytes = bytes}, {});
  ASSERT_TRUE(plan.ok());
  for (const Step& step : {first, second, first}) {
    ASSERT_TRUE(run.backend->refresh(**plan, run.view_of(step), {}).ok());
    run.actual.draw_inputs(step);
    run.expected.draw_inputs(step);
    LinearCall l;
    LayerCall call;
    run.actual.put_into(l, call);
    ASSERT_TRUE(run.backend->run(**plan, call, {}).ok());
    run_reference(run.expected, step);
    run.compare(step);
  }
  EXPECT_LE(run.errors.o, kRecurrent);
  EXPECT_LE(run.errors.state, kRecurrent);
  const Status other = run.backend->refresh(**plan, run.view_of({{1, 1}, {0, 1}}), {});
  EXPECT_FALSE(other.ok());
}

TEST(LinearOnHopperRefusals, WhatNoKernelDoes) {
  const auto refused = [](AttentionSpec spec, std::string_view why) {
    const auto made = make(spec);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.status().text().find(why), std::string::npos) << made.status().text();
  };
  refused(spec_of({Variant::gdn, 1, 1, 200, 32, 4}, DType::f32), "up to 128 dims, not 200");
  refused(spec_of({Variant::mamba2, 1, 1, 300, 32, 4}, DType::f32), "up to 256 dims, not 300");
  refused(spec_of(kGdn, DType::f16), "reads fp32 or bf16");
  AttentionSpec window = spec_of(kKda, DType::f32);
  window.window_left = 8;
  refused(window, "sliding window");

  Both run(kGdn, DType::bf16, Gates::ordinary);
  const Step step{{40}, {1}};
  const BatchView view = run.view_of(step);
  const std::size_t bytes =
      run.backend->workspace_size({.max_batch = 1, .max_qo_tokens = 40}).device_bytes;
  std::vector<std::uint8_t> memory(bytes + 256);
  auto* at = memory.data() + (256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256);
  EXPECT_FALSE(run.backend->plan(view, {.device = at, .device_bytes = bytes - 1}, {}).ok());
}

}  // namespace
}  // namespace attune::backends::test
