#include "kernels/linear/reference.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/linear/activations.hpp"

namespace attune::kernels::linear {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// ln(1 + e^x), the identity beyond 20 as every published implementation has it.
double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

/// Element `c` of token `t` of q, k or v after the convolution, where there is one.
double prepared(const Params& p, const Item& item, const Activations& plain, int channel,
                std::int64_t t, int c) {
  if (p.conv_kernel == 0) return load(plain.data, p.bf16, (item.first_token + t) * plain.row + c);
  const int ch = channel + c;
  const std::int64_t history = p.conv_kernel - 1;
  double sum = p.conv_bias != nullptr ? p.conv_bias[ch] : 0.0;
  for (int r = 0; r < p.conv_kernel; ++r) {
    const std::int64_t at = t - history + r;
    const float x =
        at >= 0 ? load(p.conv_input.data, p.bf16, (item.first_token + at) * p.conv_input.row + ch)
                : load(p.conv_state, p.bf16,
                       item.slot * p.conv_state_slot + ch * history + history + at);
    sum +=
        static_cast<double>(p.conv_weight[static_cast<std::int64_t>(ch) * p.conv_kernel + r]) * x;
  }
  return p.conv_silu ? sum * sigmoid(sum) : sum;
}

void l2_normalise(std::vector<double>& x, double scale) {
  double sum = 1e-6;
  for (double e : x) sum += e * e;
  for (double& e : x) e *= scale / std::sqrt(sum);
}

/// Natural log of the decay of key channel `c` of v-head `h` at token `t`.
double log_decay(const Params& p, const Item& item, std::int64_t t, int h, int c) {
  const std::int64_t row = (item.first_token + t) * p.gate.row;
  switch (p.family) {
    case Family::lightning: return -static_cast<double>(p.slopes[h]);
    case Family::gdn:
      return -std::exp(static_cast<double>(p.a_log[h])) *
             softplus(static_cast<double>(load(p.gate.data, p.bf16, row + h)) + p.dt_bias[h]);
    case Family::kda: {
      const std::int64_t at = static_cast<std::int64_t>(h) * p.dk + c;
      const double raw = static_cast<double>(load(p.gate.data, p.bf16, row + at)) + p.dt_bias[at];
      const double a = std::exp(static_cast<double>(p.a_log[h]));
      if (p.gate_lower_bound < 0.0f) return p.gate_lower_bound * sigmoid(a * raw);
      return -a * softplus(raw);
    }
    case Family::mamba2: break;
  }
  return 0.0;
}

}  // namespace

void run_reference(const Params& p, const Item& item) {
  if (item.slot < 0) return;
  const int ratio = p.num_v_heads / p.num_k_heads;
  const bool delta_rule = p.family == Family::gdn || p.family == Family::kda;
  std::vector<double> q(static_cast<std::size_t>(p.dk));
  std::vector<double> k(static_cast<std::size_t>(p.dk));
  std::vector<double> v(static_cast<std::size_t>(p.dv));
  std::vector<double> s(static_cast<std::size_t>(p.dv) * static_cast<std::size_t>(p.dk));

  for (int h = item.first_head; h < item.first_head + item.num_heads; ++h) {
    float* state = p.state + item.slot * p.state_slot + static_cast<std::int64_t>(h) * p.dv * p.dk;
    std::copy_n(state, s.size(), s.begin());
    const int kh = h / ratio;
    for (std::int64_t t = 0; t < item.num_tokens; ++t) {
      for (int c = 0; c < p.dk; ++c) {
        q[static_cast<std::size_t>(c)] = prepared(p, item, p.q, p.q_channel, t, kh * p.dk + c);
        k[static_cast<std::size_t>(c)] = prepared(p, item, p.k, p.k_channel, t, kh * p.dk + c);
      }
      for (int d = 0; d < p.dv; ++d)
        v[static_cast<std::size_t>(d)] = prepared(p, item, p.v, p.v_channel, t, h * p.dv + d);

      const std::int64_t token = item.first_token + t;
      double beta = 1.0;
      double decay = 0.0;
      if (delta_rule) {
        l2_normalise(q, 1.0 / std::sqrt(static_cast<double>(p.dk)));
        l2_normalise(k, 1.0);
        beta = p.beta_scale * sigmoid(load(p.beta.data, p.bf16, token * p.beta.row + h));
      } else if (p.family == Family::mamba2) {
        const double raw = load(p.gate.data, p.bf16, token * p.gate.row + h);
        const double dt = std::clamp(softplus(raw + p.dt_bias[h]), static_cast<double>(p.dt_min),
                                     static_cast<double>(p.dt_max));
        beta = dt;
        decay = -std::exp(static_cast<double>(p.a_log[h])) * dt;
      }
      for (int c = 0; c < p.dk; ++c) {
        const double g = p.family == Family::mamba2 ? decay : log_decay(p, item, t, h, c);
        for (int d = 0; d < p.dv; ++d) s[static_cast<std::size_t>(d * p.dk + c)] *= std::exp(g);
      }
      for (int d = 0; d < p.dv; ++d) {
        double* row = s.data() + static_cast<std::ptrdiff_t>(d) * p.dk;
        double predicted = 0.0;
        if (delta_rule)
          for (int c = 0; c < p.dk; ++c) predicted += row[c] * k[static_cast<std::size_t>(c)];
        const double u = beta * (v[static_cast<std::size_t>(d)] - predicted);
        double out = 0.0;
        for (int c = 0; c < p.dk; ++c) {
          row[c] += u * k[static_cast<std::size_t>(c)];
          out += row[c] * q[static_cast<std::size_t>(c)];
        }
        if (p.d_skip != nullptr) out += p.d_skip[h] * v[static_cast<std::size_t>(d)];
        store(p.o, p.bf16, token * p.o_row + h * p.dv + d, static_cast<float>(out));
      }
    }
    std::transform(s.begin(), s.end(), state, [](double x) { return static_cast<float>(x); });
  }
}

}  // namespace attune::kernels::linear
