#include "kernels/linear/convolution.hpp"

#include <algorithm>
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

namespace {

/// Inputs are copied as they are stored. The whole state moves by the tokens at once, across
/// channels too: what comes from a neighbour is overwritten by the new inputs.
template <class T>
void advance(const ConvolutionParams& p, const Item& item) {
  const std::int64_t history = p.kernel - 1;
  auto* state = static_cast<T*>(p.state) + item.slot * p.state_slot;
  const auto* input = static_cast<const T*>(p.input.data) + item.first_token * p.input.row;
  const std::int64_t stay = std::max<std::int64_t>(history - item.num_tokens, 0);
  if (stay > 0) std::copy(state + item.num_tokens, state + p.channels * history, state);
  for (std::int64_t r = stay; r < history; ++r) {
    const T* row = input + (item.num_tokens - history + r) * p.input.row;
    for (std::int64_t c = 0; c < p.channels; ++c) state[c * history + r] = row[c];
  }
}

}  // namespace

void advance_state(const ConvolutionParams& p, const Item& item) {
  if (item.num_tokens == 0) return;
  if (p.bf16) {
    advance<std::uint16_t>(p, item);
  } else {
    advance<float>(p, item);
  }
}

}  // namespace attune::kernels::linear
