// The convolution of short_conv as a layer of its own, over vectors of channels (layer kernels).
// Template on the SIMD type.
#pragma once

#include <cstdint>

#include "kernels/linear/convolution.hpp"
#include "kernels/linear/prepare.hpp"

namespace attune::kernels::linear {

template <class S>
struct ConvolutionBody : Prepare<S> {
  using Base = Prepare<S>;
  using Base::kWidth;
  using Base::padded;

  static std::int64_t scratch_floats(int channels) {
    return static_cast<std::int64_t>(padded(channels)) * (2 * kMaxTaps + kChunk);
  }

  /// As convolve() in convolution.hpp; the request's first rows read the state.
  static void run(const ConvolutionParams& p, const Item& item, int first_channel, int end_channel,
                  float* scratch) {
    if (item.num_tokens == 0) return;
    const int channels = end_channel - first_channel;
    const int width = padded(channels);
    Params q;
    q.bf16 = p.bf16;
    q.conv_kernel = p.kernel;
    q.conv_silu = p.silu;
    q.conv_input = p.input;
    q.conv_weight = p.weight;
    q.conv_bias = p.bias;
    q.conv_state = p.state;
    q.conv_state_slot = p.state_slot;
    const ConvolutionScratch conv{scratch, scratch + (kMaxTaps + 1) * width};
    float* x = scratch + 2 * kMaxTaps * width;
    Base::begin_convolution(q, item.slot, first_channel, channels, conv);
    for (std::int64_t first = 0; first < item.num_tokens; first += kChunk) {
      const std::int64_t left = item.num_tokens - first;
      const int count = left < kChunk ? static_cast<int>(left) : kChunk;
      const std::int64_t token = item.first_token + first;
      Base::load_rows(q, p.input, first_channel, channels, token, count, x);
      Base::convolve(q, width, count, conv, x);
      for (int t = 0; t < count; ++t) {
        const std::int64_t to = (token + t) * p.o_row + first_channel;
        for (int c = 0; c < channels; c += kWidth)
          Base::store_activations(p.o, p.bf16, to + c,
                                  S::load(x + static_cast<std::int64_t>(t) * width + c),
                                  channels - c);
      }
    }
  }
};

}  // namespace attune::kernels::linear
