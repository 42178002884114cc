// The oracle is held to cases worked by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "backends/reference_problem.hpp"

namespace attune::backends::reference {
namespace {

using test::Answer;
using test::Problem;
using test::solve;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Zero queries: every visible key weighs the same, so the output counts and averages them.
Problem averaging(std::int32_t qo_len, std::vector<double> values) {
  Problem p;
  p.qo_len = qo_len;
  p.kv_len = static_cast<std::int32_t>(values.size());
  p.q.assign(static_cast<std::size_t>(qo_len), 0.0);
  p.k.assign(values.size(), 1.0);
  p.v = std::move(values);
  return p;
}

TEST(Reference, TwoRowsThatMergeToTheHandWorkedVector) {
  // Logits ln 2 with value 1 and ln 6 with value 3: 2.5, ln 8; with the sink ln 2: 2.
  Problem p;
  p.kv_len = 2;
  p.q = {1.0};
  p.k = {std::log(2.0), std::log(6.0)};
  p.v = {1.0, 3.0};
  Answer a = solve(p, {});
  EXPECT_NEAR(a.o[0], 2.5, 1e-6);
  EXPECT_NEAR(a.lse[0], std::log(8.0), 1e-6);
  p.sinks = {static_cast<float>(std::log(2.0))};
  a = solve(p, {});
  EXPECT_NEAR(a.o[0], 2.0, 1e-6);
  EXPECT_NEAR(a.lse[0], std::log(8.0), 1e-6) << "the sink is not inside";
}

TEST(Reference, SoftCapVectors) {
  // lse of one key is its logit.
  Problem p = averaging(1, {1.0});
  p.q = {1.0};
  const double vectors[][3] = {{10, 50, 9.868766011},
                               {10, 30, 9.645382126},
                               {60, 50, 41.68273},
                               {100, 30, 29.92374},
                               {20, 50, 18.99745}};
  for (const auto& [score, cap, want] : vectors) {
    p.k = {score};
    p.spec.logits_soft_cap = static_cast<float>(cap);
    EXPECT_NEAR(solve(p, {}).lse[0], want, 1e-5);
  }
  // The bias stays outside the cap: cap(100) - 8 at distance 1.
  Problem biased = averaging(1, {1.0, 1.0});
  biased.q = {1.0};
  biased.k = {100.0, -1e30};
  biased.spec.logits_soft_cap = 50.0f;
  biased.slopes = {8.0f};
  EXPECT_NEAR(solve(biased, {}).lse[0], 40.20138, 1e-5);
}

TEST(Reference, XaiTemperatureVectors) {
  const std::pair<std::int64_t, double> vectors[] = {
      {1024, 1.0}, {1025, 1.000140819}, {2048, 1.1}, {1 << 20, 2.0}};
  for (const auto& [position, want] : vectors) {
    Problem p = averaging(1, {1.0});
    p.q = {1.0};
    p.spec.xai_temperature_len = 1024;
    p.offset = position;
    EXPECT_NEAR(solve(p, {}).lse[0], want, 1e-6) << position;
  }
}

TEST(Reference, CausalIsAlignedBottomRight) {
  // 2 queries, 5 keys: 11110 / 11111.
  const Answer a = solve(averaging(2, {1, 2, 4, 8, 16}), {});
  EXPECT_FLOAT_EQ(a.o[0], 15.0f / 4);
  EXPECT_FLOAT_EQ(a.o[1], 31.0f / 5);
}

TEST(Reference, AWindowOfWCountsTheTokenItself) {
  // Hugging Face's W = 4 is window_left = 3: 1 2 3 4 4 4 4 visible keys.
  Problem p = averaging(7, {1, 1, 1, 1, 1, 1, 1});
  p.spec.window_left = 3;
  const Answer a = solve(p, {});
  for (int r = 0; r < 7; ++r)
    EXPECT_NEAR(std::exp(a.lse[static_cast<std::size_t>(r)]), std::min(r + 1, 4), 1e-5);
}

TEST(Reference, SinksShrinkTheMean) {
  Problem p = averaging(1, {1, 1, 1, 1, 1, 1, 1, 1});
  p.sinks = {1.5f};
  EXPECT_NEAR(solve(p, {}).o[0], 0.640939, 1e-6);
}

TEST(Reference, RowsThatSeeNothingAreZeroAndMinusInfinity) {
  Problem p = averaging(5, {3, 5});
  const Answer a = solve(p, {});
  EXPECT_THAT(a.o, ::testing::ElementsAre(0, 0, 0, 3, 4));
  EXPECT_THAT(std::vector<float>(a.lse.begin(), a.lse.begin() + 3),
              ::testing::ElementsAre(-kInf, -kInf, -kInf));
}

TEST(Reference, HugeLogitsStayFinite) {
  Problem p = averaging(1, {1, 3});
  p.q = {1e4};
  p.k = {1e5, 1e5};
  EXPECT_FLOAT_EQ(solve(p, {}).o[0], 2.0f);
}

TEST(Reference, RefusesWhatItCannotDo) {
  AttentionSpec spec = averaging(1, {1}).spec;
  EXPECT_TRUE(make({.spec = spec}).ok());
  const auto text = [](const BackendContext& c) { return make(c).status().text(); };
  EXPECT_THAT(text({.spec = spec, .kv_layout = KvLayout::mla_latent}), HasSubstr("layout"));
  EXPECT_THAT(text({.spec = spec, .page_size = 0}), HasSubstr("page_size"));
  BackendContext gpu{.spec = spec};
  gpu.device.kind = DeviceKind::cuda;
  EXPECT_THAT(text(gpu), HasSubstr("cuda"));
  spec.relative_bias = true;
  EXPECT_THAT(text({.spec = spec}), HasSubstr("relative"));
  spec.relative_bias = false;
  spec.variant = Variant::gdn;
  EXPECT_THAT(text({.spec = spec}), HasSubstr("gdn"));
}

}  // namespace
}  // namespace attune::backends::reference
