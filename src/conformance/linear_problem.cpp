#include "conformance/linear_problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <attune/linear_state.hpp>

#include "base/join.hpp"
#include "tensor/element.hpp"

namespace attune::conformance {
namespace {

using base::join;

std::vector<float> normal(Random& random, std::int64_t n, double mean, double deviation) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& x : values) x = static_cast<float>(mean + deviation * random.normal());
  return values;
}

std::vector<char> rows_of(Random& random, std::int64_t n, DType dtype, double mean = 0.0,
                          double deviation = 1.0) {
  std::vector<char> rows(static_cast<std::size_t>(n) * size_of(dtype));
  for (std::int64_t i = 0; i < n; ++i)
    tensor::store_element(rows.data(), dtype, i, mean + deviation * random.normal());
  return rows;
}

/// exp(A_log) times softplus(gate + dt_bias) is the decay's negative logarithm.
struct GateLaw {
  double a_log, dt_bias, gate, spread;
};
GateLaw law_of(Gates gates) {
  switch (gates) {
    case Gates::forgetful: return {3.0, 2.0, 2.0, 1.0};
    case Gates::lasting: return {-14.0, -4.0, -2.0, 1.0};
    case Gates::steep: return {-3.0, 0.0, 0.0, 18.0};
    case Gates::typical: break;
  }
  return {-0.5, -1.0, 0.0, 1.0};
}

/// A published lightning layer's slopes fall geometrically over the heads.
std::vector<float> slopes_of(int heads, Gates gates) {
  const double largest = gates == Gates::forgetful ? 60.0 : gates == Gates::lasting ? 1e-9 : 0.84;
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h)
    slopes.push_back(static_cast<float>(largest * std::exp2(-8.0 * h / heads)));
  return slopes;
}

std::vector<double> doubles(const std::vector<char>& bytes, DType dtype) {
  std::vector<double> out(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = tensor::load_element(bytes.data(), dtype, static_cast<std::int64_t>(i));
  return out;
}

std::vector<float> floats(const std::vector<char>& bytes, DType dtype) {
  const std::vector<double> wide = doubles(bytes, dtype);
  return {wide.begin(), wide.end()};
}

const float* or_null(const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); }

}  // namespace

std::int64_t LinearProblem::input_width() const {
  if (spec.variant != Variant::lightning) return spec.conv_dim;
  return 2 * std::int64_t{spec.linear_num_k_heads} * spec.linear_head_dim_k + output_width();
}
std::int64_t LinearProblem::gate_width() const {
  switch (spec.variant) {
    case Variant::gdn:
    case Variant::mamba2: return spec.linear_num_v_heads;
    case Variant::kda: return std::int64_t{spec.linear_num_v_heads} * spec.linear_head_dim_k;
    default: return 0;
  }
}
std::int64_t LinearProblem::beta_width() const {
  const bool delta = spec.variant == Variant::gdn || spec.variant == Variant::kda;
  return delta ? spec.linear_num_v_heads : 0;
}
std::int64_t LinearProblem::output_width() const {
  if (spec.variant == Variant::short_conv) return spec.conv_dim;
  return std::int64_t{spec.linear_num_v_heads} * spec.linear_head_dim_v;
}
std::int64_t LinearProblem::state_width() const {
  if (spec.variant == Variant::short_conv) return 0;
  return output_width() * spec.linear_head_dim_k;
}
std::int64_t LinearProblem::conv_state_width() const {
  if (spec.variant == Variant::lightning) return 0;
  return std::int64_t{spec.conv_dim} * (spec.conv_kernel - 1);
}

LinearProblem make_linear_problem(const Case& one, std::uint64_t layer) {
  Random random(one.seed * 1000003 + layer);
  LinearProblem p{.spec = one.spec, .requests = one.requests};
  p.first_token = {0};
  for (const RequestShape& r : one.requests)
    p.first_token.push_back(p.first_token.back() + r.qo_len);
  const GateLaw law = law_of(one.gates);
  const DType dtype = one.spec.q_dtype;
  const std::int64_t heads = one.spec.linear_num_v_heads;
  p.input = rows_of(random, p.num_tokens() * p.input_width(), dtype);
  p.gate = rows_of(random, p.num_tokens() * p.gate_width(), dtype, law.gate, law.spread);
  p.beta = rows_of(random, p.num_tokens() * p.beta_width(), dtype);

  // Odd seeds have what a family may have or not.
  const bool rich = one.seed % 2 == 1;
  if (one.spec.variant == Variant::lightning) {
    p.slopes = slopes_of(one.spec.linear_num_v_heads, one.gates);
  } else {
    const double tap = 1.0 / std::sqrt(static_cast<double>(one.spec.conv_kernel));
    p.conv_weight =
        normal(random, std::int64_t{one.spec.conv_dim} * one.spec.conv_kernel, 0.0, tap);
    if (rich) p.conv_bias = normal(random, one.spec.conv_dim, 0.0, 0.25);
  }
  if (p.gate_width() > 0) {
    p.a_log = normal(random, heads, law.a_log, 0.5);
    p.dt_bias = normal(random, p.gate_width(), law.dt_bias, 0.5);
  }
  switch (one.spec.variant) {
    case Variant::gdn: p.beta_scale = rich ? 2.0f : 1.0f; break;
    case Variant::kda: p.gate_lower_bound = rich ? -5.0f : 0.0f; break;
    case Variant::mamba2:
      if (!rich) break;
      p.d_skip = normal(random, heads, 1.0, 0.5);
      p.dt_min = 0.02f;
      p.dt_max = 8.0f;
      break;
    default: break;
  }

  const auto rows = static_cast<std::int64_t>(one.requests.size());
  p.state = normal(random, rows * p.state_width(), 0.0, 0.5);
  p.conv_state = rows_of(random, rows * p.conv_state_width(), dtype);
  for (std::size_t i = 0; i < one.requests.size(); ++i) {
    if (one.requests[i].kv_len > one.requests[i].qo_len) continue;
    const auto clear = [i](auto& values, std::size_t width) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * width);
      std::fill(begin, begin + static_cast<std::ptrdiff_t>(width), 0);
    };
    clear(p.state, static_cast<std::size_t>(p.state_width()));
    clear(p.conv_state, static_cast<std::size_t>(p.conv_state_width()) * size_of(dtype));
  }
  return p;
}

LinearShapes linear_shapes(const LinearProblem& p, DType dtype, std::int64_t tokens,
                           std::int64_t gap) {
  const auto rows = [&](std::int64_t width) {
    if (width == 0) return TensorView{};
    TensorView view = TensorView::dense(nullptr, dtype, {tokens, width});
    view.stride[0] += gap;
    return view;
  };
  return {.input = rows(p.input_width()),
          .gate = rows(p.gate_width()),
          .beta = rows(p.beta_width()),
          .o = rows(p.output_width())};
}

void fill_call(const LinearProblem& p, const LinearTensors& t, LinearCall& call) {
  call.conv_silu = p.spec.variant != Variant::short_conv;
  if (p.spec.variant == Variant::lightning) {
    std::int64_t from = 0;
    const auto part = [&](std::int64_t width) {
      TensorView view = t.rows.input;
      view.shape[1] = width;
      view.data =
          static_cast<char*>(view.data) + from * static_cast<std::int64_t>(size_of(view.dtype));
      from += width;
      return view;
    };
    const std::int64_t keys = std::int64_t{p.spec.linear_num_k_heads} * p.spec.linear_head_dim_k;
    call.q = part(keys);
    call.k = part(keys);
    call.v = part(p.output_width());
  } else {
    call.conv_input = t.rows.input;
    call.conv_state = t.conv_state;
  }
  call.gate = t.rows.gate;
  call.beta = t.rows.beta;
  call.state = t.state;
  call.conv_weight = t.conv_weight;
  call.conv_bias = t.conv_bias;
  call.a_log = t.a_log;
  call.dt_bias = t.dt_bias;
  call.d_skip = t.d_skip;
  call.slopes = t.slopes;
  call.beta_scale = p.beta_scale;
  call.gate_lower_bound = p.gate_lower_bound;
  call.dt_min = p.dt_min;
  call.dt_max = p.dt_max;
}

Result<LinearAnswer> solve(const LinearProblem& p, const Subject& subject) {
  AttentionSpec spec = p.spec;
  spec.q_dtype = spec.o_dtype = spec.kv_dtype = DType::f32;
  auto backend = subject.oracle({.spec = spec, .executor = subject.executor});
  if (!backend.ok()) return backend.status();

  std::vector<float> input = floats(p.input, p.spec.q_dtype);
  std::vector<float> gate = floats(p.gate, p.spec.q_dtype);
  std::vector<float> beta = floats(p.beta, p.spec.q_dtype);
  std::vector<float> conv_state = floats(p.conv_state, p.spec.q_dtype);
  std::vector<float> state = p.state;
  std::vector<float> o(static_cast<std::size_t>(p.num_tokens() * p.output_width()),
                       std::numeric_limits<float>::quiet_NaN());
  const auto slots = static_cast<std::int64_t>(p.requests.size());
  LinearTensors tensors{.rows = linear_shapes(p, DType::f32, p.num_tokens(), 0),
                        .conv_weight = or_null(p.conv_weight),
                        .conv_bias = or_null(p.conv_bias),
                        .a_log = or_null(p.a_log),
                        .dt_bias = or_null(p.dt_bias),
                        .d_skip = or_null(p.d_skip),
                        .slopes = or_null(p.slopes)};
  tensors.rows.input.data = input.data();
  tensors.rows.gate.data = gate.data();
  tensors.rows.beta.data = beta.data();
  tensors.rows.o.data = o.data();
  tensors.conv_state = TensorView::dense(conv_state.data(), DType::f32,
                                         {slots, spec.conv_dim, spec.conv_kernel - 1});
  tensors.state = TensorView::dense(
      state.data(), DType::f32,
      {slots, spec.linear_num_v_heads, spec.linear_head_dim_v, spec.linear_head_dim_k});
  LinearCall linear;
  fill_call(p, tensors, linear);

  std::vector<std::int32_t> qo_indptr(p.first_token.begin(), p.first_token.end());
  std::vector<std::int32_t> state_indices;
  for (std::int64_t i = 0; i < slots; ++i)
    state_indices.push_back(
        p.requests[static_cast<std::size_t>(i)].padding ? -1 : static_cast<std::int32_t>(i));
  const BatchView batch{
      .form = BatchForm::extend, .qo_indptr = qo_indptr, .state_indices = state_indices};
  const BatchBounds bounds{.max_batch = slots, .max_qo_tokens = p.num_tokens()};
  const auto memory = host_memory();
  auto workspace = GuardedMemory::make(*memory, (*backend)->workspace_size(bounds).device_bytes, 0);
  if (!workspace.ok()) return workspace.status();
  auto plan =
      (*backend)->plan(batch, {.device = workspace->data(), .device_bytes = workspace->size()}, {});
  if (!plan.ok()) return plan.status();
  if (Status s = (*backend)->run(**plan, {.o = tensors.rows.o, .linear = &linear}, {}); !s.ok())
    return s;
  LinearAnswer answer{.o = {o.begin(), o.end()},
                      .state = {state.begin(), state.end()},
                      .conv_state = {conv_state.begin(), conv_state.end()}};
  for (std::size_t i = 0; i < p.requests.size(); ++i) {
    if (!p.requests[i].padding) continue;
    const auto blank = [i](std::vector<double>& values, std::int64_t width) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i) * width;
      std::fill(begin, begin + width, std::numeric_limits<double>::quiet_NaN());
    };
    blank(answer.state, p.state_width());
    blank(answer.conv_state, p.conv_state_width());
  }
  return answer;
}

namespace {

/// Errors of a recurrence grow with what its state holds, so the bound's absolute part is a share
/// of the largest value. fp32: products summed in another order; bf16 and f16: a backend may round
/// the operands of its products.
double share_of_largest(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 1.2e-2;
    case DType::f16: return 2e-3;
    default: return 2e-5;
  }
}

double largest(const std::vector<double>& values) {
  double most = 0.0;
  for (const double x : values)
    if (!std::isnan(x)) most = std::max(most, std::fabs(x));
  return most;
}

void hold(const std::vector<double>& have, const std::vector<double>& want, double share,
          std::string_view what, std::int64_t width, Outcome& outcome, std::string& worst) {
  const double absolute = std::max(share * largest(want), 1e-30);
  for (std::size_t i = 0; i < want.size(); ++i) {
    double excess = 0.0;
    if (std::isnan(want[i]) || !std::isfinite(have[i])) {
      if (std::isnan(want[i]) && std::isnan(have[i])) continue;
      excess = std::numeric_limits<double>::infinity();
    } else {
      const double error = std::fabs(have[i] - want[i]);
      outcome.max_abs_err = std::max(outcome.max_abs_err, error);
      excess = error / (absolute + share * std::fabs(want[i]));
    }
    if (excess <= outcome.excess) continue;
    outcome.excess = excess;
    const auto at = static_cast<std::int64_t>(i);
    worst = join(what, " of row ", at / width, ", column ", at % width, ": have ", have[i],
                 ", want ", want[i]);
  }
}

}  // namespace

Outcome compare(const LinearProblem& p, const LinearAnswer& have, const LinearAnswer& want) {
  const double share = share_of_largest(p.spec.q_dtype);
  Outcome outcome{.tolerance = share * largest(want.o)};
  std::string worst;
  hold(have.o, want.o, share, "o", p.output_width(), outcome, worst);
  hold(have.state, want.state, share, "the state", p.state_width(), outcome, worst);
  // Copies of inputs.
  hold(have.conv_state, want.conv_state, 0.0, "the convolution's state", p.conv_state_width(),
       outcome, worst);
  if (outcome.excess > 1.0) {
    outcome.verdict = Verdict::failed;
    outcome.reason = join(worst, " (", outcome.excess, " times the tolerance)");
  }
  return outcome;
}

Outcome compare_bits(const LinearAnswer& have, const LinearAnswer& want) {
  struct Pair {
    std::string_view what;
    const std::vector<double>*have, *want;
  };
  const std::array<Pair, 3> pairs{
      {{"o", &have.o, &want.o},
       {"the state", &have.state, &want.state},
       {"the convolution's state", &have.conv_state, &want.conv_state}}};
  for (const Pair& pair : pairs)
    for (std::size_t i = 0; i < pair.want->size(); ++i) {
      const double a = (*pair.have)[i];
      const double b = (*pair.want)[i];
      if (a != b && !(std::isnan(a) && std::isnan(b)))
        return failed(join("bits differ: element ", i, " of ", pair.what, " is ", a, " and ", b));
    }
  return {};
}

}  // namespace attune::conformance
