// short_conv's convolution, and the advance of every convolution's state (layer kernels). Both are
// one pass over their bytes, a thread a channel.
#pragma once

#include <cstdint>

#include "kernels/linear/policy.hpp"
#include "kernels/linear/sm90/gates.cuh"

namespace attune::kernels::linear::sm90 {

inline constexpr int kConvolutionThreads = 128;
inline constexpr int kConvolutionTokens = 32;  ///< of one block

__device__ __forceinline__ History history_of(const ConvolutionParams& p, const Span& span) {
  return {p.input.data,     p.input.row, p.state, span.slot * p.state_slot,
          span.first_token, p.kernel,    p.bf16};
}

/// o = act(conv(input)); the state is read and not moved. Grid: spans, channels, tokens.
static __global__ void __launch_bounds__(kConvolutionThreads)
    convolution_kernel(const __grid_constant__ ConvolutionParams p) {
  const Span span = p.spans[blockIdx.x];
  const int channel = static_cast<int>(blockIdx.y * kConvolutionThreads + threadIdx.x);
  const int first = static_cast<int>(blockIdx.z) * kConvolutionTokens;
  if (span.slot < 0 || channel >= p.channels) return;
  const History x = history_of(p, span);
  float weight[kMaxTaps];
  float window[kMaxTaps];
#pragma unroll
  for (int r = 0; r < kMaxTaps; ++r) {
    weight[r] = r < p.kernel ? p.weight[static_cast<std::int64_t>(channel) * p.kernel + r] : 0.0f;
    window[r] = 0.0f;
  }
  const float bias = p.bias != nullptr ? p.bias[channel] : 0.0f;
  const int end = min(first + kConvolutionTokens, span.num_tokens);
  // window[r] is what tap r multiplies at token t.
  for (int r = 1; first < end && r < p.kernel; ++r) {
    const float value = x.at(first - p.kernel + r, channel);
#pragma unroll
    for (int place = 0; place < kMaxTaps; ++place)
      if (place == r) window[place] = value;
  }
  for (int t = first; t < end; ++t) {
    float sum = bias;
    const float newest = x.at(t, channel);
#pragma unroll
    for (int r = 0; r < kMaxTaps; ++r) {
      window[r] = r + 1 == p.kernel ? newest : r + 1 < kMaxTaps ? window[r + 1] : 0.0f;
      if (r < p.kernel) sum += weight[r] * window[r];
    }
    write(p.o, p.bf16, (span.first_token + t) * p.o_row + channel,
          p.silu ? sum * sigmoid(sum) : sum);
  }
}

/// state <- the last taps - 1 entries of concat(state, input). Grid: spans, channels.
static __global__ void __launch_bounds__(kConvolutionThreads)
    advance_kernel(const __grid_constant__ ConvolutionParams p) {
  const Span span = p.spans[blockIdx.x];
  const int channel = static_cast<int>(blockIdx.y * kConvolutionThreads + threadIdx.x);
  if (span.slot < 0 || span.num_tokens == 0 || channel >= p.channels) return;
  const History x = history_of(p, span);
  const int history = p.kernel - 1;
  float entries[kMaxTaps - 1];
#pragma unroll
  for (int r = 0; r < kMaxTaps - 1; ++r)
    entries[r] = r < history ? x.at(span.num_tokens - history + r, channel) : 0.0f;
#pragma unroll
  for (int r = 0; r < kMaxTaps - 1; ++r)
    if (r < history)
      write(p.state, p.bf16,
            span.slot * p.state_slot + static_cast<std::int64_t>(channel) * history + r,
            entries[r]);
}

}  // namespace attune::kernels::linear::sm90
