// Reading activations, and a token's decay and beta from the raw gates (layer kernels). Formulas:
// include/attune/linear_state.hpp.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/tiles.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::linear::sm90 {

__device__ __forceinline__ float read(const void* data, bool bf16, std::int64_t at) {
  return bf16 ? widen(static_cast<const Half*>(data)[at]) : static_cast<const float*>(data)[at];
}
__device__ __forceinline__ void write(void* data, bool bf16, std::int64_t at, float value) {
  if (bf16) {
    static_cast<Half*>(data)[at] = narrow(value);
  } else {
    static_cast<float*>(data)[at] = value;
  }
}

/// e^x by the special function unit, for decays that are about to be rounded to bf16.
__device__ __forceinline__ float exp_approx(float x) { return ptx::exp2_approx(x * 1.44269504f); }

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// ln(1 + e^x), the identity beyond 20 as every published implementation has it.
__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

__device__ __forceinline__ bool has_delta_rule(Family f) {
  return f == Family::gdn || f == Family::kda;
}

struct TokenGate {
  float log_decay;  ///< kda: not set here
  float beta;
};

__device__ inline TokenGate token_gate(const Params& p, int head, std::int64_t token) {
  if (p.family == Family::lightning) return {-p.slopes[head], 1.0f};
  if (p.family == Family::mamba2) {
    const float raw = read(p.gate.data, p.bf16, token * p.gate.row + head);
    const float dt = fminf(fmaxf(softplus(raw + p.dt_bias[head]), p.dt_min), p.dt_max);
    return {-expf(p.a_log[head]) * dt, dt};
  }
  const float beta = p.beta_scale * sigmoid(read(p.beta.data, p.bf16, token * p.beta.row + head));
  if (p.family == Family::kda) return {0.0f, beta};
  const float raw = read(p.gate.data, p.bf16, token * p.gate.row + head);
  return {-expf(p.a_log[head]) * softplus(raw + p.dt_bias[head]), beta};
}

/// kda's log decay of one key channel; `a` is e^A_log of the head.
__device__ __forceinline__ float channel_gate(const Params& p, float a, int head, int channel,
                                              std::int64_t token) {
  const std::int64_t at = static_cast<std::int64_t>(head) * p.dk + channel;
  const float raw = read(p.gate.data, p.bf16, token * p.gate.row + at) + p.dt_bias[at];
  return p.gate_lower_bound < 0.0f ? p.gate_lower_bound * sigmoid(a * raw) : -a * softplus(raw);
}

/// Input `t` (counted from the request's first token in this batch; negative: the state's) of one
/// channel.
struct History {
  const void* input;
  std::int64_t row;
  const void* state;
  std::int64_t state_begin;  ///< of the request's slot
  std::int64_t first_token;
  int taps;
  bool bf16;

  __device__ __forceinline__ float at(std::int64_t t, int channel) const {
    if (t >= 0) return read(input, bf16, (first_token + t) * row + channel);
    const std::int64_t history = taps - 1;
    return read(state, bf16, state_begin + channel * history + history + t);
  }
};

__device__ __forceinline__ History history_of(const Params& p, std::int64_t first_token,
                                              std::int32_t slot) {
  return {p.conv_input.data, p.conv_input.row, p.conv_state, slot * p.conv_state_slot,
          first_token,       p.conv_kernel,    p.bf16};
}

/// One channel at one token, convolved.
__device__ inline float convolved(const Params& p, const History& x, std::int64_t t, int channel) {
  float sum = p.conv_bias != nullptr ? p.conv_bias[channel] : 0.0f;
  for (int r = 0; r < p.conv_kernel; ++r)
    sum += p.conv_weight[static_cast<std::int64_t>(channel) * p.conv_kernel + r] *
           x.at(t - p.conv_kernel + 1 + r, channel);
  return p.conv_silu ? sum * sigmoid(sum) : sum;
}

}  // namespace attune::kernels::linear::sm90
