// Reading activations, and a token's decay and beta from the raw gates (layer kernels). Formulas:
// include/attune/linear_state.hpp.
#pragma once

#include <cstdint>
#include <type_traits>

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

inline constexpr float kLog2E = 1.44269504f;

/// e^x by the special function unit, for decays that are about to be rounded to bf16.
__device__ __forceinline__ float exp_approx(float x) { return ptx::exp2_approx(x * kLog2E); }

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// ln(1 + e^x), the identity beyond 20 as every published implementation has it.
__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

struct TokenGate {
  float log_decay;  ///< kda: not set here
  float beta;
};

/// An activation as loaded: to be widened once everything that is wanted has been asked for.
template <bool Bf16>
using Raw = std::conditional_t<Bf16, Half, float>;
template <bool Bf16>
__device__ __forceinline__ Raw<Bf16> read_raw(const void* data, std::int64_t at) {
  return static_cast<const Raw<Bf16>*>(data)[at];
}
__device__ __forceinline__ float value_of(Half raw) { return widen(raw); }
__device__ __forceinline__ float value_of(float raw) { return raw; }

/// What a token's gate is made of.
template <bool Bf16>
struct RawGate {
  Raw<Bf16> gate = 0;
  Raw<Bf16> beta = 0;
  float a_log = 0.0f;  ///< lightning: the slope
  float dt_bias = 0.0f;
};

template <bool Bf16>
__device__ __forceinline__ RawGate<Bf16> raw_gate(const Params& p, int head, std::int64_t token) {
  RawGate<Bf16> raw;
  if (p.family == Family::lightning) {
    raw.a_log = p.slopes[head];
    return raw;
  }
  if (p.family != Family::mamba2) raw.beta = read_raw<Bf16>(p.beta.data, token * p.beta.row + head);
  if (p.family == Family::kda) return raw;
  raw.gate = read_raw<Bf16>(p.gate.data, token * p.gate.row + head);
  raw.a_log = p.a_log[head];
  raw.dt_bias = p.dt_bias[head];
  return raw;
}

template <bool Bf16>
__device__ __forceinline__ TokenGate token_gate(const Params& p, const RawGate<Bf16>& raw) {
  if (p.family == Family::lightning) return {-raw.a_log, 1.0f};
  if (p.family == Family::mamba2) {
    const float dt = fminf(fmaxf(softplus(value_of(raw.gate) + raw.dt_bias), p.dt_min), p.dt_max);
    return {-expf(raw.a_log) * dt, dt};
  }
  const float beta = p.beta_scale * sigmoid(value_of(raw.beta));
  if (p.family == Family::kda) return {0.0f, beta};
  return {-expf(raw.a_log) * softplus(value_of(raw.gate) + raw.dt_bias), beta};
}

/// kda's log decay of one key channel from its raw gate plus dt_bias; `a` is e^A_log of the head.
__device__ __forceinline__ float channel_gate(const Params& p, float a, float raw) {
  return p.gate_lower_bound < 0.0f ? p.gate_lower_bound * sigmoid(a * raw) : -a * softplus(raw);
}

/// The same by the special function unit, for what is about to be rounded to bf16.
__device__ __forceinline__ float sigmoid_approx(float x) {
  return ptx::reciprocal_approx(1.0f + exp_approx(-x));
}

/// Of a chunk whose lanes have two tokens each.
struct DecaySums {
  float first;   ///< up to the lane's first token
  float second;  ///< up to its second
  float end;     ///< of all
};

__device__ __forceinline__ DecaySums sum_decays(float first, float second) {
  float sum = first + second;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float earlier = __shfl_up_sync(0xffffffffu, sum, static_cast<unsigned>(step));
    if (lane_id() >= step) sum += earlier;
  }
  return {sum - second, sum, __shfl_sync(0xffffffffu, sum, 31)};
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

  /// One load, whichever tensor it is from.
  template <bool Bf16>
  __device__ __forceinline__ Raw<Bf16> raw_at(std::int64_t t, int channel) const {
    const auto* inputs = static_cast<const Raw<Bf16>*>(input) + (first_token + t) * row + channel;
    const auto* states = static_cast<const Raw<Bf16>*>(state) + state_begin +
                         static_cast<std::int64_t>(channel + 1) * (taps - 1) + t;
    return *(t >= 0 ? inputs : states);
  }
  __device__ __forceinline__ float at(std::int64_t t, int channel) const {
    return bf16 ? value_of(raw_at<true>(t, channel)) : raw_at<false>(t, channel);
  }
};

__device__ __forceinline__ History history_of(const Params& p, std::int64_t first_token,
                                              std::int32_t slot) {
  return {p.conv_input.data, p.conv_input.row, p.conv_state, slot * p.conv_state_slot,
          first_token,       p.conv_kernel,    p.bf16};
}

}  // namespace attune::kernels::linear::sm90
