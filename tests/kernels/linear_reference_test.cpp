// The oracle of linear attention against the vectors worked by hand.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "kernels/linear/convolution.hpp"
#include "kernels/linear/reference.hpp"

namespace attune::kernels::linear {
namespace {

/// The inverse of softplus, so that a test can name the decay it wants.
float softplus_inverse(double y) { return static_cast<float>(std::log(std::expm1(y))); }
float logit(double y) { return static_cast<float>(std::log(y / (1.0 - y))); }

// The common data: q = [(.6,.8),(1,0)], k = [(1,0),(.6,.8)] of unit length, v = [2,-1]; the state
// starts as (1, .5).
struct Micro {
  std::array<float, 4> q{0.6f, 0.8f, 1.0f, 0.0f};
  std::array<float, 4> k{1.0f, 0.0f, 0.6f, 0.8f};
  std::array<float, 2> v{2.0f, -1.0f};
  std::array<float, 2> state{1.0f, 0.5f};
  std::array<float, 2> o{};

  Params params(Family family) {
    Params p{.family = family, .num_k_heads = 1, .num_v_heads = 1, .dk = 2, .dv = 1};
    p.q = {q.data(), 2};
    p.k = {k.data(), 2};
    p.v = {v.data(), 1};
    p.state = state.data();
    p.state_slot = 2;
    p.o = o.data();
    p.o_row = 1;
    return p;
  }
};

constexpr Item kTwoTokens{
    .first_token = 0, .num_tokens = 2, .slot = 0, .first_head = 0, .num_heads = 1};
// The l2 norm adds 1e-6 under the root, which the hand-worked vectors leave out.
constexpr double kNormTolerance = 3e-6;
// q is scaled by dk^-1/2 inside; the vectors are not.
const double kQueryScale = std::sqrt(2.0);

TEST(LinearReference, GatedDeltaNetMicroVector) {
  Micro m;
  Params p = m.params(Family::gdn);
  const float zero = 0.0f;
  const std::array<float, 2> gate{softplus_inverse(0.5), softplus_inverse(0.25)};
  const std::array<float, 2> beta{logit(0.5), 100.0f};
  p.a_log = &zero;
  p.dt_bias = &zero;
  p.gate = {gate.data(), 1};
  p.beta = {beta.data(), 1};
  run_reference(p, kTwoTokens);
  EXPECT_NEAR(m.o[0] * kQueryScale, 1.024571462, kNormTolerance);
  EXPECT_NEAR(m.o[1] * kQueryScale, -0.063778175, kNormTolerance);
  EXPECT_NEAR(m.state[0], -0.063778175, kNormTolerance);
  EXPECT_NEAR(m.state[1], -1.202166369, kNormTolerance);
}

TEST(LinearReference, KimiDeltaMicroVector) {
  Micro m;
  Params p = m.params(Family::kda);
  const float zero = 0.0f;
  const std::array<float, 2> bias{};
  const std::array<float, 4> gate{softplus_inverse(0.5), softplus_inverse(1.0),
                                  softplus_inverse(0.25), -100.0f};
  const std::array<float, 2> beta{logit(0.5), 100.0f};
  p.a_log = &zero;
  p.dt_bias = bias.data();
  p.gate = {gate.data(), 2};
  p.beta = {beta.data(), 1};
  run_reference(p, kTwoTokens);
  EXPECT_NEAR(m.o[0] * kQueryScale, 0.929110974, kNormTolerance);
  EXPECT_NEAR(m.o[1] * kQueryScale, -0.038701268, kNormTolerance);
  EXPECT_NEAR(m.state[1], -1.220974049, kNormTolerance);
}

TEST(LinearReference, LightningMicroVector) {
  Micro m;
  Params p = m.params(Family::lightning);
  const float slope = 0.5f;
  p.slopes = &slope;
  run_reference(p, kTwoTokens);
  EXPECT_NEAR(m.o[0], 1.806530660, 1e-6);
  EXPECT_NEAR(m.o[1], 0.980940761, 1e-6);
  EXPECT_NEAR(m.state[0], 0.980940761, 1e-6);
  EXPECT_NEAR(m.state[1], -0.616060279, 1e-6);
}

TEST(LinearReference, Mamba2MicroVector) {
  Params p{.family = Family::mamba2, .num_k_heads = 1, .num_v_heads = 1, .dk = 2, .dv = 1};
  const std::array<float, 2> x{2.0f, -1.0f};
  const std::array<float, 4> b{1.0f, 0.0f, 0.5f, 1.0f};
  const std::array<float, 4> c{1.0f, 1.0f, 0.0f, 2.0f};
  const std::array<float, 2> dt{softplus_inverse(0.5), softplus_inverse(0.25)};
  const float zero = 0.0f;
  const float d = 0.5f;
  std::array<float, 2> state{0.5f, -1.0f};
  std::array<float, 2> o{};
  p.q = {c.data(), 2};
  p.k = {b.data(), 2};
  p.v = {x.data(), 1};
  p.gate = {dt.data(), 1};
  p.a_log = &zero;
  p.dt_bias = &zero;
  p.d_skip = &d;
  p.state = state.data();
  p.state_slot = 2;
  p.o = o.data();
  p.o_row = 1;
  run_reference(p, kTwoTokens);
  EXPECT_NEAR(o[0], 1.696734670, 1e-6);
  EXPECT_NEAR(o[1], -1.944733105, 1e-6);
  EXPECT_NEAR(state[0], 0.889984059, 1e-6);
  EXPECT_NEAR(state[1], -0.722366553, 1e-6);
}

TEST(LinearReference, APaddingRowTouchesNothing) {
  Micro m;
  Params p = m.params(Family::lightning);
  const float slope = 0.5f;
  p.slopes = &slope;
  m.o = {7.0f, 7.0f};
  Item padding = kTwoTokens;
  padding.slot = -1;
  run_reference(p, padding);
  EXPECT_EQ(m.o[0], 7.0f);
  EXPECT_EQ(m.state[0], 1.0f);
}

TEST(Convolution, StreamedEqualsWhole) {
  constexpr int kTaps = 4;
  constexpr int kChannels = 3;
  constexpr int kTokens = 11;
  std::vector<float> x(kTokens * kChannels);
  std::vector<float> w(kChannels * kTaps);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<float>(std::cos(1.3 * static_cast<double>(i)));
  std::vector<float> whole(x.size());
  std::vector<float> streamed(x.size());
  std::vector<float> state(kChannels * (kTaps - 1));
  ConvolutionParams p{.silu = true, .kernel = kTaps, .channels = kChannels};
  p.input = {x.data(), kChannels};
  p.weight = w.data();
  p.state = state.data();
  p.state_slot = static_cast<std::int64_t>(state.size());
  p.o = whole.data();
  p.o_row = kChannels;
  convolve(p, {.num_tokens = kTokens, .slot = 0}, 0, kChannels);

  p.o = streamed.data();
  std::int64_t at = 0;
  for (std::int64_t n : {1, 2, 0, 5, 1, 2}) {
    const Item item{.first_token = at, .num_tokens = n, .slot = 0};
    convolve(p, item, 0, kChannels);
    advance_state(p, item);
    at += n;
  }
  ASSERT_EQ(at, kTokens);
  EXPECT_EQ(whole, streamed);
}

}  // namespace
}  // namespace attune::kernels::linear
