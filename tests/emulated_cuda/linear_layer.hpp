// One layer of linear attention, by the Hopper backends and by the double-precision recurrence.
// Everything that must not be read holds NaN, everything that must not be written is looked at
// afterwards.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
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
#include "tensor/narrow_float.hpp"

namespace attune::backends::test {

namespace linear = kernels::linear;

inline constexpr int kSlots = 30;

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

inline AttentionSpec spec_of(const Shape& s, DType activations) {
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

inline Result<std::unique_ptr<Backend>> make(const AttentionSpec& spec) {
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
inline void run_reference(Layer& layer, const Step& step) {
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

/// A layer by the backend and by the reference, step after step.
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

}  // namespace attune::backends::test
