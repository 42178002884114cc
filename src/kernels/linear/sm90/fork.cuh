// A second state for draft tokens: what the known tokens before them leave, in a slot of their own
// (layer kernels). The convolution's history is forked before either slot moves, the recurrent
// state once the known tokens have passed it.
#pragma once

#include <cstdint>

#include "kernels/linear/policy.hpp"
#include "kernels/linear/sm90/convolution.cuh"

namespace attune::kernels::linear::sm90 {

inline constexpr int kForkThreads = 256;
inline constexpr int kForkElements = 4096;  ///< of one request's state, a block

/// Grid: requests, channels.
static __global__ void __launch_bounds__(kConvolutionThreads)
    fork_history_kernel(const __grid_constant__ ForkParams d) {
  const ConvolutionParams& p = d.convolution;
  const Span known = d.known[blockIdx.x];
  const std::int64_t to = d.drafts[blockIdx.x].slot;
  const int channel = static_cast<int>(blockIdx.y * kConvolutionThreads + threadIdx.x);
  if (known.slot < 0 || to < 0 || channel >= p.channels) return;
  const History x = history_of(p, known);
  const int history = p.kernel - 1;
  for (int r = 0; r < history; ++r)
    write(p.state, p.bf16, to * p.state_slot + static_cast<std::int64_t>(channel) * history + r,
          x.at(known.num_tokens - history + r, channel));
}

/// Grid: requests, pieces of a state.
static __global__ void __launch_bounds__(kForkThreads)
    fork_state_kernel(const __grid_constant__ ForkParams d) {
  const std::int64_t from = d.known[blockIdx.x].slot;
  const std::int64_t to = d.drafts[blockIdx.x].slot;
  if (from < 0 || to < 0) return;
  const float* source = d.state + from * d.state_slot;
  float* target = d.state + to * d.state_slot;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * kForkElements;
  const std::int64_t end = begin + kForkElements < d.elements ? begin + kForkElements : d.elements;
  if (d.wide_state) {
    for (std::int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * kForkThreads)
      *reinterpret_cast<float4*>(target + i) = *reinterpret_cast<const float4*>(source + i);
    return;
  }
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kForkThreads) target[i] = source[i];
}

}  // namespace attune::kernels::linear::sm90
