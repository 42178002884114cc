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

/// The same for four taps in bf16, where eight channels are whole 16 bytes of state and of input.
static __global__ void __launch_bounds__(kConvolutionThreads)
    advance_eight_kernel(const __grid_constant__ ConvolutionParams p) {
  const Span span = p.spans[blockIdx.x];
  const int channel = 8 * static_cast<int>(blockIdx.y * kConvolutionThreads + threadIdx.x);
  if (span.slot < 0 || span.num_tokens == 0 || channel >= p.channels) return;
  constexpr int kHistory = 3;
  auto* state = reinterpret_cast<uint4*>(static_cast<Half*>(p.state) + span.slot * p.state_slot +
                                         kHistory * channel);
  const int fresh = min(span.num_tokens, kHistory);
  uint4 old[kHistory];
  uint4 input[kHistory];  ///< the span's last rows, of the entries that come from them
#pragma unroll
  for (int r = 0; r < kHistory; ++r) {
    old[r] = fresh < kHistory ? state[r] : make_uint4(0, 0, 0, 0);
    const std::int64_t token = span.first_token + span.num_tokens - kHistory + r;
    input[r] = r >= kHistory - fresh
                   ? *reinterpret_cast<const uint4*>(static_cast<const Half*>(p.input.data) +
                                                     token * p.input.row + channel)
                   : make_uint4(0, 0, 0, 0);
  }
  const auto half_of = [](const uint4(&x)[kHistory], int i) {
    const uint4& four = x[i / 8];
    const std::uint32_t word = i / 2 % 4 == 0   ? four.x
                               : i / 2 % 4 == 1 ? four.y
                               : i / 2 % 4 == 2 ? four.z
                                                : four.w;
    return i % 2 == 0 ? word & 0xffffu : word >> 16;
  };
  std::uint32_t words[4 * kHistory];
#pragma unroll
  for (int i = 0; i < 8 * kHistory; ++i) {
    const int c = i / kHistory;
    const int r = i % kHistory;
    // Entry r was entry r + fresh; beyond the last it is an input.
    std::uint32_t half = half_of(input, 8 * r + c);
    if (r + 1 < kHistory && fresh == 1) half = half_of(old, kHistory * c + r + 1);
    if (r + 2 < kHistory && fresh == 2) half = half_of(old, kHistory * c + r + 2);
    words[i / 2] = i % 2 == 0 ? half : words[i / 2] | half << 16;
  }
#pragma unroll
  for (int r = 0; r < kHistory; ++r)
    state[r] = make_uint4(words[4 * r], words[4 * r + 1], words[4 * r + 2], words[4 * r + 3]);
}

}  // namespace attune::kernels::linear::sm90
