#include "kernels/linear/convolution.hpp"

#include <cmath>

#include "kernels/linear/activations.hpp"

namespace attune::kernels::linear {
namespace {

/// Input `t` of channel `c`, counted from the request's first token; negative t lies in the state.
float input_at(const ConvolutionParams& p, const Item& item, std::int64_t t, int c) {
  if (t >= 0) return load(p.input.data, p.bf16, (item.first_token + t) * p.input.row + c);
  const std::int64_t history = p.kernel - 1;
  return load(p.state, p.bf16, item.slot * p.state_slot + c * history + history + t);
}

}  // namespace

void convolve(const ConvolutionParams& p, const Item& item, int first_channel, int end_channel) {
  for (std::int64_t t = 0; t < item.num_tokens; ++t) {
    for (int c = first_channel; c < end_channel; ++c) {
      float sum = p.bias != nullptr ? p.bias[c] : 0.0f;
      for (int r = 0; r < p.kernel; ++r)
        sum += p.weight[static_cast<std::int64_t>(c) * p.kernel + r] *
               input_at(p, item, t - p.kernel + 1 + r, c);
      if (p.silu) sum = sum / (1.0f + std::exp(-sum));
      store(p.o, p.bf16, (item.first_token + t) * p.o_row + c, sum);
    }
  }
}

void advance_state(const ConvolutionParams& p, const Item& item) {
  const int history = p.kernel - 1;
  if (item.num_tokens == 0) return;
  for (int c = 0; c < p.channels; ++c) {
    const std::int64_t base = item.slot * p.state_slot + static_cast<std::int64_t>(c) * history;
    // Oldest first: what entry r becomes was input num_tokens - history + r, which is never left of
    // entry r itself.
    for (int r = 0; r < history; ++r)
      store(p.state, p.bf16, base + r, input_at(p, item, item.num_tokens - history + r, c));
  }
}

}  // namespace attune::kernels::linear
