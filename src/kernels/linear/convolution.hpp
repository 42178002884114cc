// The depthwise causal convolution in front of gdn, kda, mamba2 and short_conv, and its state
// (layer kernels).
#pragma once

#include <cstdint>

#include "kernels/linear/params.hpp"

namespace attune::kernels::linear {

/// One request's convolution over all channels of a short_conv layer, and its state's advance for
/// every family.
struct ConvolutionParams {
  bool bf16 = false;
  bool silu = false;
  int kernel = 0;  ///< taps
  int channels = 0;
  Activations input{};            ///< [tokens, channels]
  const float* weight = nullptr;  ///< [channels, kernel]
  const float* bias = nullptr;    ///< [channels] or none
  void* state = nullptr;          ///< [slots, channels, kernel - 1]
  std::int64_t state_slot = 0;    ///< elements between slots
  void* o = nullptr;              ///< [tokens, channels]
  std::int64_t o_row = 0;
};

/// o = act(conv(input)) for channels [first_channel, end_channel) of one request, whose state is
/// read and not moved.
void convolve(const ConvolutionParams& p, const Item& item, int first_channel, int end_channel);

/// state <- the last kernel - 1 entries of concat(state, input), also where the request has fewer
/// tokens than taps.
void advance_state(const ConvolutionParams& p, const Item& item);

}  // namespace attune::kernels::linear
