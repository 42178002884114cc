// Every shipped kernel of linear attention against the double-precision recurrence: families,
// lengths about the chunk and block borders, dims that fill no vector, extreme gates, bf16, and
// resumption at any border.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <attune/device.hpp>

#include "kernels/linear/convolution.hpp"
#include "kernels/linear/policy.hpp"
#include "kernels/linear/reference.hpp"
#include "kernels/linear/table.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::kernels::linear {
namespace {

struct Shape {
  Family family;
  int num_k_heads;
  int num_v_heads;
  int dk;
  int dv;
  int taps;
};

/// enormous: some tokens forget all and some nothing; sums of logarithms are beyond 1e7, where fp32
/// numbers lie 1 apart, and exp() of a gate would be infinite.
enum class Gates { ordinary, forgetful, retentive, enormous };

/// A layer with random inputs for `tokens` rows of one request, in slot 1 of 3; other slots are
/// NaN.
class Layer {
 public:
  Layer(const Shape& shape, std::int64_t tokens, bool bf16, Gates gates, unsigned seed)
      : shape_(shape), bf16_(bf16), random_(seed) {
    const int kq = shape.num_k_heads * shape.dk;
    const int vv = shape.num_v_heads * shape.dv;
    const int channels = 2 * kq + vv;
    const int gate_width =
        shape.family == Family::kda ? shape.num_v_heads * shape.dk : shape.num_v_heads;
    float mean = 0.0f;
    if (gates == Gates::forgetful) mean = 30.0f;
    if (gates == Gates::retentive) mean = -30.0f;
    input_ = activations(tokens * channels, 0.0f, 1.0f);
    const bool enormous = gates == Gates::enormous;
    gate_ = activations(tokens * gate_width, mean, enormous ? 3000.0f : 1.0f);
    beta_ = activations(tokens * shape.num_v_heads, 0.0f, 2.0f);
    weight_ = floats(static_cast<std::int64_t>(channels) * std::max(shape.taps, 1), 0.0f, 0.5f);
    bias_ = floats(channels, 0.0f, 0.3f);
    a_log_ = floats(shape.num_v_heads, enormous ? 7.0f : -1.0f, 0.5f);
    dt_bias_ = floats(gate_width, -1.0f, 0.5f);
    d_skip_ = floats(shape.num_v_heads, 0.0f, 1.0f);
    slopes_.resize(static_cast<std::size_t>(shape.num_v_heads));
    for (int h = 0; h < shape.num_v_heads; ++h)
      slopes_[static_cast<std::size_t>(h)] = std::exp2(-static_cast<float>(h));
    const std::int64_t state_slot =
        static_cast<std::int64_t>(shape.num_v_heads) * shape.dv * shape.dk;
    state_ = std::vector<float>(static_cast<std::size_t>(3 * state_slot), std::nanf(""));
    for (std::int64_t i = 0; i < state_slot; ++i)
      state_[static_cast<std::size_t>(state_slot + i)] = normal(0.0f, 0.3f);
    const std::int64_t history = std::max(shape.taps - 1, 0);
    conv_state_ = activations(3 * channels * history, 0.0f, 1.0f);
    o_.assign(static_cast<std::size_t>(tokens * vv) * (bf16 ? 2 : 4), 0xff);

    p_.family = shape.family;
    p_.bf16 = bf16;
    p_.num_k_heads = shape.num_k_heads;
    p_.num_v_heads = shape.num_v_heads;
    p_.dk = shape.dk;
    p_.dv = shape.dv;
    p_.conv_kernel = shape.taps;
    const std::size_t element = bf16 ? 2 : 4;
    const auto column = [&](int c) {
      return input_.data() + static_cast<std::size_t>(c) * element;
    };
    if (shape.taps > 0) {
      p_.conv_input = {input_.data(), channels};
      p_.q_channel = shape.family == Family::mamba2 ? vv + kq : 0;
      p_.k_channel = shape.family == Family::mamba2 ? vv : kq;
      p_.v_channel = shape.family == Family::mamba2 ? 0 : 2 * kq;
      p_.conv_weight = weight_.data();
      p_.conv_bias = bias_.data();
      p_.conv_state = conv_state_.data();
      p_.conv_state_slot = channels * history;
    } else {
      p_.q = {column(0), channels};
      p_.k = {column(kq), channels};
      p_.v = {column(2 * kq), channels};
    }
    p_.gate = {gate_.data(), gate_width};
    p_.beta = {beta_.data(), shape.num_v_heads};
    p_.a_log = a_log_.data();
    p_.dt_bias = dt_bias_.data();
    p_.d_skip = shape.family == Family::mamba2 ? d_skip_.data() : nullptr;
    p_.slopes = slopes_.data();
    p_.state = state_.data();
    p_.state_slot = state_slot;
    p_.o = o_.data();
    p_.o_row = vv;
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  [[nodiscard]] const Params& params() const { return p_; }
  [[nodiscard]] Item item(std::int64_t first, std::int64_t count) const {
    return {.first_token = first,
            .num_tokens = count,
            .slot = 1,
            .first_head = 0,
            .num_heads = shape_.num_v_heads};
  }
  void move_conv_state(const Item& item) {
    if (shape_.taps == 0) return;
    ConvolutionParams c{
        .bf16 = bf16_, .kernel = shape_.taps, .channels = static_cast<int>(p_.conv_input.row)};
    c.input = p_.conv_input;
    c.state = conv_state_.data();
    c.state_slot = p_.conv_state_slot;
    advance_state(c, item);
  }
  [[nodiscard]] std::vector<float> o() const {
    std::vector<float> out(o_.size() / (bf16_ ? 2 : 4));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = bf16_ ? tensor::to_float(reinterpret_cast<const tensor::Bf16*>(o_.data())[i])
                     : reinterpret_cast<const float*>(o_.data())[i];
    return out;
  }
  [[nodiscard]] std::vector<float> state() const {
    const auto slot = static_cast<std::ptrdiff_t>(p_.state_slot);
    return {state_.begin() + slot, state_.begin() + 2 * slot};
  }
  [[nodiscard]] bool other_slots_untouched() const {
    for (std::int64_t i = 0; i < p_.state_slot; ++i)
      if (!std::isnan(state_[static_cast<std::size_t>(i)]) ||
          !std::isnan(state_[static_cast<std::size_t>(2 * p_.state_slot + i)]))
        return false;
    return true;
  }

 private:
  float normal(float mean, float deviation) {
    return std::normal_distribution<float>(mean, deviation)(random_);
  }
  std::vector<float> floats(std::int64_t n, float mean, float deviation) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = normal(mean, deviation);
    return out;
  }
  std::vector<std::uint8_t> activations(std::int64_t n, float mean, float deviation) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(n) * (bf16_ ? 2 : 4));
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = normal(mean, deviation);
      if (bf16_) {
        reinterpret_cast<tensor::Bf16*>(out.data())[i] = tensor::to_bf16(x);
      } else {
        reinterpret_cast<float*>(out.data())[i] = x;
      }
    }
    return out;
  }

  Shape shape_;
  bool bf16_;
  std::mt19937 random_;
  Params p_;
  std::vector<std::uint8_t> input_, gate_, beta_, conv_state_, o_;
  std::vector<float> weight_, bias_, a_log_, dt_bias_, d_skip_, slopes_, state_;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double scale = std::max(1.0, static_cast<double>(std::fabs(b[i])));
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]) / scale;
    if (!(difference <= worst)) worst = difference;  // a NaN stays
  }
  return worst;
}

/// As a share of the largest number: what rounding the operands of products leaves where sums
/// cancel.
double share_of_largest(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  double largest = 1.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::fabs(b[i])));
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= worst)) worst = difference;  // a NaN stays
  }
  return worst / largest;
}

bool runs_here(Isa isa) {
  const CpuIsa usable = cpu_device().isa;
  return isa == Isa::scalar || (isa == Isa::avx2 && usable >= CpuIsa::avx2) ||
         (isa == Isa::avx512 && usable >= CpuIsa::avx512) ||
         (isa == Isa::avx512_bf16 && usable >= CpuIsa::avx512_bf16);
}

std::vector<float> scratch_for(const Kernel& kernel, const Params& p) {
  return std::vector<float>(static_cast<std::size_t>(kernel.scratch_floats(p)), std::nanf(""));
}

class LinearKernels : public testing::TestWithParam<const Kernel*> {
 protected:
  void SetUp() override {
    if (!runs_here(GetParam()->isa)) GTEST_SKIP() << "this CPU lacks the instruction set";
  }
  void expect_reference(const Shape& shape, std::int64_t tokens, bool bf16, Gates gates) {
    const std::string what = "family " + std::to_string(static_cast<int>(shape.family)) +
                             " tokens " + std::to_string(tokens) + (bf16 ? " bf16" : "");
    Layer expected(shape, tokens, bf16, gates, 11);
    Layer actual(shape, tokens, bf16, gates, 11);
    run_reference(expected.params(), expected.item(0, tokens));
    std::vector<float> scratch = scratch_for(*GetParam(), actual.params());
    GetParam()->run(actual.params(), actual.item(0, tokens), scratch.data());
    if (gates == Gates::enormous) {
      EXPECT_LT(share_of_largest(actual.o(), expected.o()), 1e-3) << what;
      EXPECT_LT(share_of_largest(actual.state(), expected.state()), 1e-3) << what;
    } else if (bf16 && GetParam()->isa == Isa::avx512_bf16) {
      EXPECT_LT(share_of_largest(actual.o(), expected.o()), 1.2e-2) << what;
      EXPECT_LT(share_of_largest(actual.state(), expected.state()), 1.2e-2) << what;
    } else {
      EXPECT_LT(largest_difference(actual.o(), expected.o()), bf16 ? 1e-2 : 1e-4) << what;
      EXPECT_LT(largest_difference(actual.state(), expected.state()), 1e-4) << what;
    }
    EXPECT_TRUE(actual.other_slots_untouched()) << what;
  }
};

constexpr Shape kShapes[] = {
    {Family::gdn, 2, 4, 32, 32, 4},       {Family::gdn, 1, 3, 24, 40, 4},
    {Family::kda, 2, 2, 32, 32, 4},       {Family::kda, 1, 1, 20, 12, 3},
    {Family::mamba2, 1, 4, 16, 24, 4},    {Family::mamba2, 2, 6, 64, 32, 4},
    {Family::lightning, 3, 3, 16, 16, 0}, {Family::lightning, 1, 1, 48, 80, 0},
};

TEST_P(LinearKernels, EqualTheRecurrence) {
  for (const Shape& shape : kShapes)
    for (std::int64_t tokens : {0, 1, 2, 8, 9, 15, 16, 17, 63, 64, 65, 130, 200})
      expect_reference(shape, tokens, false, Gates::ordinary);
}

TEST_P(LinearKernels, EqualTheRecurrenceInBf16) {
  for (const Shape& shape : kShapes)
    for (std::int64_t tokens : {1, 16, 70, 200})
      for (Gates gates : {Gates::ordinary, Gates::forgetful, Gates::retentive})
        expect_reference(shape, tokens, true, gates);
}

TEST_P(LinearKernels, SurviveExtremeGates) {
  for (const Shape& shape : kShapes)
    for (Gates gates : {Gates::forgetful, Gates::retentive, Gates::enormous})
      for (std::int64_t tokens : {3, 100}) expect_reference(shape, tokens, false, gates);
}

/// A prompt that 16 bits do not count.
TEST_P(LinearKernels, MoreThan65536Tokens) {
  for (const Shape& shape :
       {Shape{Family::gdn, 1, 1, 8, 8, 4}, Shape{Family::kda, 1, 1, 8, 8, 4},
        Shape{Family::mamba2, 1, 1, 8, 8, 4}, Shape{Family::lightning, 1, 1, 8, 8, 0}})
    expect_reference(shape, 65537, false, Gates::ordinary);
}

TEST_P(LinearKernels, ResumeAtAnyBorder) {
  constexpr std::int64_t kTokens = 150;
  for (const Shape& shape : kShapes) {
    Layer whole(shape, kTokens, false, Gates::ordinary, 5);
    run_reference(whole.params(), whole.item(0, kTokens));
    Layer parts(shape, kTokens, false, Gates::ordinary, 5);
    std::vector<float> scratch = scratch_for(*GetParam(), parts.params());
    std::int64_t at = 0;
    for (std::int64_t n : {1, 64, 2, 0, 20, 1, 1, 61}) {
      const Item item = parts.item(at, n);
      GetParam()->run(parts.params(), item, scratch.data());
      parts.move_conv_state(item);
      at += n;
    }
    ASSERT_EQ(at, kTokens);
    EXPECT_LT(largest_difference(parts.o(), whole.o()), 1e-4);
    EXPECT_LT(largest_difference(parts.state(), whole.state()), 1e-4);
  }
}

TEST_P(LinearKernels, InvariantTokensDoNotSeeTheOnesBehindThem) {
  constexpr std::int64_t kTokens = 64;
  for (const Shape& shape : kShapes)
    for (const bool bf16 : {false, true}) {
      const auto run = [&](std::int64_t n) {
        Layer layer(shape, kTokens, bf16, Gates::ordinary, 7);
        Params p = layer.params();
        p.batch_invariant = true;
        std::vector<float> scratch = scratch_for(*GetParam(), p);
        GetParam()->run(p, layer.item(0, n), scratch.data());
        std::vector<float> o = layer.o();
        o.resize(static_cast<std::size_t>(n * shape.num_v_heads * shape.dv));
        return o;
      };
      const std::vector<float> whole = run(kTokens);
      for (std::int64_t n : {9, 15, 16, 17, 30, 47, 63})
        EXPECT_TRUE(std::ranges::equal(run(n), std::span(whole).first(static_cast<std::size_t>(
                                                   n * shape.num_v_heads * shape.dv))))
            << "family " << static_cast<int>(shape.family) << ", " << n << " tokens";
    }
}

TEST_P(LinearKernels, HeadsMayBeSplitOverItems) {
  const Shape shape{Family::gdn, 2, 4, 32, 32, 4};
  Layer expected(shape, 80, false, Gates::ordinary, 3);
  Layer actual(shape, 80, false, Gates::ordinary, 3);
  std::vector<float> scratch = scratch_for(*GetParam(), actual.params());
  GetParam()->run(expected.params(), expected.item(0, 80), scratch.data());
  for (int h = 3; h >= 0; --h) {
    Item item = actual.item(0, 80);
    item.first_head = h;
    item.num_heads = 1;
    GetParam()->run(actual.params(), item, scratch.data());
  }
  EXPECT_EQ(actual.o(), expected.o());
  EXPECT_EQ(actual.state(), expected.state());
}

std::string isa_name(const testing::TestParamInfo<const Kernel*>& kernel) {
  constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "avx512_bf16"};
  return kNames[static_cast<int>(kernel.param->isa)];
}

INSTANTIATE_TEST_SUITE_P(Isa, LinearKernels, testing::ValuesIn(kernels().begin(), kernels().end()),
                         isa_name);

}  // namespace
}  // namespace attune::kernels::linear
