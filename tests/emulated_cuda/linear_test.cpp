// Linear attention's Hopper kernels, planner and backend on emulated blocks, against the
// double-precision recurrence: lengths about the chunk's borders, batches of prompts, single tokens
// and padding, permuted slots, extreme gates, resumption anywhere. Everything that must not be read
// holds NaN, everything that must not be written is looked at afterwards.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <attune/linear_state.hpp>

#include "backends/gdn/cuda/backend.hpp"
#include "backends/kda/cuda/backend.hpp"
#include "backends/lightning/cuda/backend.hpp"
#include "backends/mamba2/cuda/backend.hpp"
#include "backends/shared/linear_checks.hpp"
#include "backends/short_conv/cuda/backend.hpp"
#include "kernels/linear/convolution.hpp"
#include "kernels/linear/reference.hpp"
#include "machine.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::backends {
namespace {

namespace linear = kernels::linear;

constexpr int kSlots = 30;

struct Shape {
  Variant variant;
  int k_heads;
  int v_heads;
  int dk;
  int dv;
  int taps;
};

enum class Gates { ordinary, forgetful, retentive, bursting };

struct Step {
  std::vector<int> lengths;
  std::vector<std::int32_t> slots;  ///< -1: padding
};

AttentionSpec spec_of(const Shape& s, DType activations) {
  AttentionSpec spec;
  spec.variant = s.variant;
  spec.q_dtype = spec.o_dtype = activations;
  spec.kv_dtype = DType::f32;
  spec.conv_kernel = s.taps;
  spec.conv_dim = s.dk;
  if (s.variant == Variant::short_conv) return spec;
  spec.linear_num_k_heads = s.k_heads;
  spec.linear_num_v_heads = s.v_heads;
  spec.linear_head_dim_k = s.dk;
  spec.linear_head_dim_v = s.dv;
  spec.conv_dim = 2 * s.k_heads * s.dk + s.v_heads * s.dv;
  return spec;
}

Result<std::unique_ptr<Backend>> make(const AttentionSpec& spec) {
  BackendContext context;
  context.spec = spec;
  context.device.kind = DeviceKind::cuda;
  context.device.sm = 90;
  switch (spec.variant) {
    case Variant::gdn: return gdn::make_cuda(context);
    case Variant::kda: return kda::make_cuda(context);
    case Variant::mamba2: return mamba2::make_cuda(context);
    case Variant::lightning: return lightning::make_cuda(context);
    default: return short_conv::make_cuda(context);
  }
}

/// Numbers of either dtype.
class Numbers {
 public:
  Numbers() = default;
  Numbers(DType dtype, std::int64_t n)
      : dtype_(dtype), bytes_(static_cast<std::size_t>(n) * size_of(dtype) + 64, 0xff) {}

  void set(std::int64_t i, float x) {
    if (dtype_ == DType::bf16) {
      const tensor::Bf16 narrow = tensor::to_bf16(x);
      std::memcpy(data() + 2 * i, &narrow, 2);
    } else {
      std::memcpy(data() + 4 * i, &x, 4);
    }
  }
  [[nodiscard]] float get(std::int64_t i) const {
    if (dtype_ == DType::bf16) {
      tensor::Bf16 narrow;
      std::memcpy(&narrow, data() + 2 * i, 2);
      return tensor::to_float(narrow);
    }
    float x;
    std::memcpy(&x, data() + 4 * i, 4);
    return x;
  }
  [[nodiscard]] bool untouched(std::int64_t i) const {
    for (std::size_t b = 0; b < size_of(dtype_); ++b)
      if (data()[static_cast<std::size_t>(i) * size_of(dtype_) + b] != 0xff) return false;
    return true;
  }
  /// Sixteen-byte aligned: the kernels have two ways to read.
  [[nodiscard]] std::uint8_t* data() { return bytes_.data() + offset(); }
  [[nodiscard]] const std::uint8_t* data() const { return bytes_.data() + offset(); }

 private:
  [[nodiscard]] std::size_t offset() const {
    return (16 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 16) % 16;
  }
  DType dtype_ = DType::f32;
  std::vector<std::uint8_t> bytes_;
};

/// One layer: weights, states of all slots, and the inputs of one step.
struct Layer {
  Layer(const Shape& shape, DType activations, Gates gates)
      : spec(spec_of(shape, activations)), kind(gates), random(7) {
    heads = std::max(1, spec.linear_num_v_heads);
    dk = std::max(1, spec.linear_head_dim_k);
    dv = std::max(1, spec.linear_head_dim_v);
    gate_width = spec.variant == Variant::kda ? heads * dk : heads;
    weight = normal(static_cast<std::int64_t>(spec.conv_dim) * std::max(1, spec.conv_kernel), 0.5f);
    bias = normal(spec.conv_dim, 0.3f);
    a_log = normal(heads, 0.5f, -1.0f);
    dt_bias = normal(gate_width, 0.5f, -1.0f);
    d_skip = normal(heads, 1.0f);
    for (int h = 0; h < heads; ++h) slopes.push_back(std::exp2(-static_cast<float>(h)));
    state.assign(static_cast<std::size_t>(kSlots * state_slot()), std::nanf(""));
    conv_state = Numbers(activations, kSlots * conv_slot());
  }

  [[nodiscard]] std::int64_t state_slot() const { return std::int64_t{heads} * dv * dk; }
  [[nodiscard]] std::int64_t conv_slot() const {
    return std::int64_t{spec.conv_dim} * std::max(0, spec.conv_kernel - 1);
  }

  void fill_slot(std::int32_t slot) {
    for (std::int64_t i = 0; i < state_slot(); ++i)
      state[static_cast<std::size_t>(slot * state_slot() + i)] = draw(0.3f);
    for (std::int64_t i = 0; i < conv_slot(); ++i)
      conv_state.set(slot * conv_slot() + i, draw(1.0f));
  }

  void draw_inputs(const Step& step) {
    tokens = 0;
    for (int n : step.lengths) tokens += n;
    width = spec.variant == Variant::short_conv ? spec.conv_dim : heads * dv;
    input = Numbers(spec.q_dtype, tokens * spec.conv_dim);
    gate = Numbers(spec.q_dtype, tokens * gate_width);
    beta = Numbers(spec.q_dtype, tokens * heads);
    o = Numbers(spec.q_dtype, tokens * width);
    std::int64_t at = 0;
    for (std::size_t r = 0; r < step.lengths.size(); ++r)
      for (int t = 0; t < step.lengths[r]; ++t, ++at) {
        if (step.slots[r] < 0) continue;
        for (int c = 0; c < spec.conv_dim; ++c) input.set(at * spec.conv_dim + c, draw(1.0f));
        for (int c = 0; c < gate_width; ++c) gate.set(at * gate_width + c, draw_gate(t, c));
        for (int h = 0; h < heads; ++h) beta.set(at * heads + h, draw(2.0f));
      }
  }

  /// The call of a step; `call` must outlive it.
  void put_into(LinearCall& l, LayerCall& call) {
    const DType t = spec.q_dtype;
    l = {};
    if (spec.variant == Variant::lightning) {
      const auto part = [&](int first, int columns) {
        TensorView v = TensorView::dense(
            input.data() + static_cast<std::size_t>(first) * size_of(t), t, {tokens, columns});
        v.stride[0] = spec.conv_dim;
        return v;
      };
      const int keys = spec.linear_num_k_heads * dk;
      l.q = part(0, keys);
      l.k = part(keys, keys);
      l.v = part(2 * keys, heads * dv);
      l.slopes = slopes.data();
    } else {
      l.conv_input = TensorView::dense(input.data(), t, {tokens, spec.conv_dim});
      l.conv_weight = weight.data();
      l.conv_bias = bias.data();
      l.conv_silu = spec.variant != Variant::short_conv;
      if (spec.conv_kernel > 1)
        l.conv_state =
            TensorView::dense(conv_state.data(), t, {kSlots, spec.conv_dim, spec.conv_kernel - 1});
      l.gate = TensorView::dense(gate.data(), t, {tokens, gate_width});
      l.beta = TensorView::dense(beta.data(), t, {tokens, heads});
      l.a_log = a_log.data();
      l.dt_bias = dt_bias.data();
      if (spec.variant == Variant::mamba2) l.d_skip = d_skip.data();
      l.gate_lower_bound = lower_bound;
      l.beta_scale = beta_scale;
      l.dt_min = 0.001f;
      l.dt_max = 50.0f;
    }
    l.state = TensorView::dense(state.data(), DType::f32, {kSlots, heads, dv, dk});
    call.o = TensorView::dense(o.data(), t, {tokens, width});
    call.linear = &l;
  }

  float draw(float deviation, float mean = 0.0f) {
    return std::normal_distribution<float>(mean, deviation)(random);
  }
  float draw_gate(int t, int c) {
    switch (kind) {
      case Gates::ordinary: return draw(1.0f);
      case Gates::forgetful: return draw(1.0f, 30.0f);
      case Gates::retentive: return draw(1.0f, -30.0f);
      case Gates::bursting: return (t + c) % 23 == 5 ? 60.0f : draw(1.0f, -8.0f);
    }
    return 0.0f;
  }
  std::vector<float> normal(std::int64_t n, float deviation, float mean = 0.0f) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = draw(deviation, mean);
    return out;
  }

  AttentionSpec spec;
  Gates kind;
  std::mt19937 random;
  int heads, dk, dv, gate_width;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  float lower_bound = 0.0f;
  float beta_scale = 1.0f;
  Numbers input, gate, beta, o, conv_state;
  std::vector<float> weight, bias, a_log, dt_bias, d_skip, slopes, state;
};

/// The same step by the double-precision recurrence and the scalar convolution.
void run_reference(Layer& layer, const Step& step) {
  LinearCall l;
  LayerCall call;
  layer.put_into(l, call);
  std::int64_t first = 0;
  for (std::size_t r = 0; r < step.lengths.size(); ++r) {
    linear::Item item{.first_token = first,
                      .num_tokens = step.lengths[r],
                      .slot = step.slots[r],
                      .first_head = 0,
                      .num_heads = layer.heads};
    first += step.lengths[r];
    if (item.slot < 0) continue;
    const linear::ConvolutionParams c = shared::convolution_params(layer.spec, call);
    if (layer.spec.variant == Variant::short_conv) {
      linear::convolve(c, item, 0, c.channels);
    } else {
      linear::run_reference(shared::recurrence_params(layer.spec, call), item);
    }
    if (layer.spec.conv_kernel > 1) linear::advance_state(c, item);
  }
}

struct Errors {
  double o = 0.0;
  double state = 0.0;
};

class Both {
 public:
  Both(const Shape& shape, DType activations, Gates gates)
      : actual(shape, activations, gates), expected(shape, activations, gates) {
    Result<std::unique_ptr<Backend>> made = make(actual.spec);
    EXPECT_TRUE(made.ok()) << made.status().text();
    if (made.ok()) backend = std::move(*made);
  }

  void fill_slot(std::int32_t slot) {
    actual.fill_slot(slot);
    expected.fill_slot(slot);
  }

  BatchView view_of(const Step& step) {
    indptr = {0};
    for (int n : step.lengths) indptr.push_back(indptr.back() + n);
    BatchView view;
    view.qo_indptr = indptr;
    view.state_indices = step.slots;
    return view;
  }

  void go(const Step& step) {
    ASSERT_NE(backend, nullptr);
    const BatchView view = view_of(step);
    actual.draw_inputs(step);
    expected.draw_inputs(step);
    const BatchBounds bounds{.max_batch = static_cast<std::int64_t>(step.lengths.size()),
                             .max_qo_tokens = view.num_qo_tokens()};
    const std::size_t bytes = backend->workspace_size(bounds).device_bytes;
    std::vector<std::uint8_t> memory(bytes + 512, 0xff);
    auto* at = memory.data() + (256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256);
    auto plan = backend->plan(view, {.device = at, .device_bytes = bytes}, {});
    ASSERT_TRUE(plan.ok()) << plan.status().text();
    LinearCall l;
    LayerCall call;
    actual.put_into(l, call);
    const Status ran = backend->run(**plan, call, {});
    ASSERT_TRUE(ran.ok()) << ran.text();
    for (std::size_t i = bytes; at + i < memory.data() + memory.size(); ++i)
      ASSERT_EQ(at[i], 0xff) << "written behind the workspace";
    run_reference(expected, step);
    compare(step);
  }

  void compare(const Step& step) {
    std::int64_t token = 0;
    double worst = 0.0;
    double largest = 1e-3;
    for (std::size_t r = 0; r < step.lengths.size(); ++r)
      for (int t = 0; t < step.lengths[r]; ++t, ++token)
        for (std::int64_t i = token * actual.width; i < (token + 1) * actual.width; ++i) {
          if (step.slots[r] < 0) {
            ASSERT_TRUE(actual.o.untouched(i)) << "padding was written";
            continue;
          }
          largest = std::max(largest, std::fabs(static_cast<double>(expected.o.get(i))));
          const double d = std::fabs(static_cast<double>(actual.o.get(i)) - expected.o.get(i));
          if (!(d <= worst)) worst = d;
        }
    errors.o = !(worst / largest <= errors.o) ? worst / largest : errors.o;

    worst = 0.0;
    largest = 1e-3;
    for (std::size_t i = 0; i < actual.state.size(); ++i) {
      ASSERT_EQ(std::isnan(actual.state[i]), std::isnan(expected.state[i])) << "state " << i;
      if (std::isnan(expected.state[i])) continue;
      largest = std::max(largest, std::fabs(static_cast<double>(expected.state[i])));
      worst = std::max(worst, std::fabs(static_cast<double>(actual.state[i]) - expected.state[i]));
    }
    errors.state = std::max(errors.state, worst / largest);
    for (std::int64_t i = 0; i < kSlots * actual.conv_slot(); ++i) {
      const float a = actual.conv_state.get(i);
      const float b = expected.conv_state.get(i);
      ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << "conv_state " << i;
    }
  }

  Layer actual;
  Layer expected;
  std::unique_ptr<Backend> backend;
  std::vector<std::int32_t> indptr;
  Errors errors;
};

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
}  // namespace attune::backends
