// What the recurrences of linear attention work on, made from what lies in memory: convolved and
// normalised rows, decays, step sizes (layer kernels). Template on the SIMD type.
#pragma once

#include <cstdint>
#include <type_traits>

#include <attune/tensor.hpp>

#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::linear {

/// The convolution of some channels, in scratch memory: rows of padded(channels) floats.
struct ConvolutionScratch {
  float* taps = nullptr;     ///< [kMaxTaps + 1]: weights by tap, then the bias
  float* history = nullptr;  ///< [kMaxTaps - 1]: inputs before the next row, oldest first
};

template <class S>
struct Prepare {
  using Vec = typename S::F;
  static constexpr int kWidth = S::kLanes;

  static int padded(int n) { return (n + kPadding - 1) / kPadding * kPadding; }
  static bool delta_rule(const Params& p) {
    return p.family == Family::gdn || p.family == Family::kda;
  }

  static Vec load_activations(const void* data, bool bf16, std::int64_t at, int n) {
    return bf16
               ? S::template load_as_n<DType::bf16>(static_cast<const std::uint16_t*>(data) + at, n)
               : S::load_n(static_cast<const float*>(data) + at, n);
  }
  static void store_activations(void* data, bool bf16, std::int64_t at, Vec value, int n) {
    if (bf16) {
      S::template store_as_n<DType::bf16>(static_cast<std::uint16_t*>(data) + at, value, n);
    } else {
      S::store_n(static_cast<float*>(data) + at, value, n);
    }
  }
  static float number(const void* data, bool bf16, std::int64_t at) {
    return bf16 ? widened(static_cast<const std::uint16_t*>(data)[at])
                : static_cast<const float*>(data)[at];
  }
  static float widened(std::uint16_t bf16) {
    const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }

  static Vec exp(Vec x) { return S::exp2(S::mul(x, S::set(1.44269504f))); }
  static Vec min(Vec a, Vec b) {
    return S::sub(S::zero(), S::max(S::sub(S::zero(), a), S::sub(S::zero(), b)));
  }
  /// Lanes below n keep x, the others become zero; n may be negative.
  static Vec keep_below(Vec x, int n) { return S::keep_range(x, 0, n, S::zero()); }
  /// x / (1 + e^-y): silu(x) for y = x, a sigmoid for x = 1.
  static Vec divide_by_one_plus_exp(Vec x, Vec y) {
    return S::div(x, S::add(S::set(1.0f), exp(S::sub(S::zero(), y))));
  }
  static Vec sigmoid(Vec x) { return divide_by_one_plus_exp(S::set(1.0f), x); }

  /// ln(1 + e^x) as max(x, 0) + 2 atanh(t / (2 + t)), t = e^-|x|; the series to z^15 errs by less
  /// than 1e-8. Beyond 20 it is x, as every published implementation has it.
  static Vec softplus(Vec x) {
    const Vec positive = S::max(x, S::zero());
    const Vec t = exp(S::sub(min(x, S::zero()), positive));
    const Vec z = S::div(t, S::add(t, S::set(2.0f)));
    const Vec z2 = S::mul(z, z);
    Vec sum = S::set(2.0f / 15.0f);
    for (int odd = 13; odd >= 1; odd -= 2)
      sum = S::fma(sum, z2, S::set(2.0f / static_cast<float>(odd)));
    return S::fma(sum, z, positive);
  }

  // ---- q, k, v ------------------------------------------------------------------------------

  /// Of `channels` channels, whose n numbers each lie together from number `at` of `data` on, number
  /// r of channel c goes to out[r * width + c], so that channels are lanes.
  template <int n>
  static void deal_out(const void* data, bool bf16, std::int64_t at, int channels, int width,
                       float* out) {
    int c = 0;
    if constexpr (S::kDeals && n > 0) {
      for (; c + kWidth <= channels; c += kWidth) {
        Vec in[n];
        for (int i = 0; i < n; ++i)
          in[i] = load_activations(data, bf16, at + c * n + i * kWidth, kWidth);
        Vec dealt[n];
        S::deal(in, dealt);
        for (int r = 0; r < n; ++r) S::store(out + r * width + c, dealt[r]);
      }
    }
    for (; c < channels; ++c)
      for (int r = 0; r < n; ++r) out[r * width + c] = number(data, bf16, at + c * n + r);
    for (; c < width; ++c)
      for (int r = 0; r < n; ++r) out[r * width + c] = 0.0f;
  }

  /// Weights, bias and the state's inputs by tap.
  template <int kTaps>
  static void gather_convolution(const Params& p, std::int32_t slot, std::int64_t channel,
                                 int channels, const ConvolutionScratch& conv) {
    const int width = padded(channels);
    deal_out<kTaps>(p.conv_weight, false, channel * kTaps, channels, width, conv.taps);
    deal_out<kTaps - 1>(p.conv_state, p.bf16, slot * p.conv_state_slot + channel * (kTaps - 1),
                        channels, width, conv.history);
    float* const bias = conv.taps + kTaps * width;
    for (int c = 0; c < width; c += kWidth)
      S::store(bias + c, p.conv_bias != nullptr && c < channels
                             ? S::load_n(p.conv_bias + channel + c, channels - c)
                             : S::zero());
  }

  /// Rows lie far apart, so no hardware fetches the next chunk's while this one is worked on.
  /// `count`: rows of this one; behind an incomplete one comes none.
  static void fetch_next_chunk(const Activations& rows, bool bf16, std::int64_t at, int columns,
                               int count) {
    if (count < kChunk) return;
    const int size = bf16 ? 2 : 4;
    const char* next = static_cast<const char*>(rows.data) + (at + kChunk * rows.row) * size;
    for (int c = 0; c < columns * size; c += kLine * 4) S::prefetch(next + c);
  }

  /// Rows [token, token + count) of `channels` columns from `column` of `rows` on, as fp32 into
  /// out[count, padded(channels)].
  static void load_rows(const Params& p, const Activations& rows, int column, int channels,
                        std::int64_t token, int count, float* out) {
    const int width = padded(channels);
    for (int t = 0; t < count; ++t) {
      const std::int64_t from = (token + t) * rows.row + column;
      float* to = out + static_cast<std::int64_t>(t) * width;
      fetch_next_chunk(rows, p.bf16, from, channels, count);
      for (int c = 0; c < width; c += kWidth) {
        const int n = channels - c;
        S::store(to + c, n > 0 ? load_activations(rows.data, p.bf16, from + c, n) : S::zero());
      }
    }
  }

  /// x[count, width] becomes its convolution, in place; the history moves on.
  template <int kTaps>
  static void convolve_rows(bool silu, int width, int count, const ConvolutionScratch& conv,
                            float* x) {
    for (int c = 0; c < width; c += kWidth) {
      Vec tap[kTaps];
      Vec in[kTaps];
      for (int r = 0; r < kTaps; ++r) tap[r] = S::load(conv.taps + r * width + c);
      for (int r = 0; r < kTaps - 1; ++r) in[r] = S::load(conv.history + r * width + c);
      const Vec bias = S::load(conv.taps + kTaps * width + c);
      for (int t = 0; t < count; ++t) {
        float* at = x + static_cast<std::int64_t>(t) * width + c;
        in[kTaps - 1] = S::load(at);
        Vec sum = bias;
        for (int r = 0; r < kTaps; ++r) sum = S::fma(tap[r], in[r], sum);
        S::store(at, silu ? divide_by_one_plus_exp(sum, sum) : sum);
        for (int r = 0; r < kTaps - 1; ++r) in[r] = in[r + 1];
      }
      for (int r = 0; r < kTaps - 1; ++r) S::store(conv.history + r * width + c, in[r]);
    }
  }

  /// use(<taps>) with the number of taps as a constant.
  template <class Use>
  static void with_taps(int taps, Use&& use) {
    simd::unroll<kMaxTaps>([&](auto i) {
      if (taps == i + 1) use(std::integral_constant<int, i + 1>{});
    });
  }

  static void begin_convolution(const Params& p, std::int32_t slot, int channel, int channels,
                                const ConvolutionScratch& conv) {
    with_taps(p.conv_kernel,
              [&](auto taps) { gather_convolution<taps>(p, slot, channel, channels, conv); });
  }

  static void convolve(const Params& p, int width, int count, const ConvolutionScratch& conv,
                       float* x) {
    with_taps(p.conv_kernel,
              [&](auto taps) { convolve_rows<taps>(p.conv_silu, width, count, conv, x); });
  }

  /// Head `head` of q, k or v (`plain` without a convolution, channels from `channel` on with one)
  /// into out[rows, padded(dim)]; rows from `count` on become zero.
  static void prepare_rows(const Params& p, const Activations& plain, int channel, int head,
                           int dim, std::int64_t token, int count, int rows,
                           const ConvolutionScratch& conv, float* out) {
    const int width = padded(dim);
    if (p.conv_kernel > 0) {
      load_rows(p, p.conv_input, channel + head * dim, dim, token, count, out);
      convolve(p, width, count, conv, out);
    } else {
      load_rows(p, plain, head * dim, dim, token, count, out);
    }
    for (int at = count * width; at < rows * width; at += kWidth) S::store(out + at, S::zero());
  }

  static void normalise_rows(float* x, int count, int width, float scale) {
    for (int t = 0; t < count; ++t) {
      float* row = x + static_cast<std::int64_t>(t) * width;
      Vec sum = S::zero();
      for (int c = 0; c < width; c += kWidth) sum = S::fma(S::load(row + c), S::load(row + c), sum);
      const Vec factor = S::set(scale / __builtin_sqrtf(S::sum(sum) + 1e-6f));
      for (int c = 0; c < width; c += kWidth) S::store(row + c, S::mul(S::load(row + c), factor));
    }
  }

  // ---- gates --------------------------------------------------------------------------------

  /// One number a token from `view`'s column `column`, plus `offset`, for tokens [first, count).
  static Vec column_of(const Params& p, const Activations& view, std::int64_t token, int column,
                       float offset, int first, int count) {
    float values[kWidth];
    for (int i = 0; i < kWidth; ++i)
      values[i] = first + i < count
                      ? number(view.data, p.bf16, (token + first + i) * view.row + column) + offset
                      : 0.0f;
    return S::load(values);
  }

  /// Natural log of the decay (each token's own, not yet summed) and beta of head h, tokens
  /// [token, token + count); rows from `count` on write nothing (g 0, beta 0).
  /// g: [rows], or [rows, padded(dk)] for kda.
  static void prepare_gates(const Params& p, int h, std::int64_t token, int count, int rows,
                            float* g, float* beta) {
    const bool by_channel = p.family == Family::kda;
    const Vec a = p.a_log != nullptr ? exp(S::set(p.a_log[h])) : S::zero();
    for (int t = 0; t < rows; t += kWidth) {
      Vec log_decay = S::zero();
      Vec step = S::set(1.0f);
      if (p.family == Family::lightning) {
        log_decay = S::set(-p.slopes[h]);
      } else {
        if (delta_rule(p))
          step =
              S::mul(S::set(p.beta_scale), sigmoid(column_of(p, p.beta, token, h, 0.0f, t, count)));
        if (!by_channel) {
          const Vec dt = softplus(column_of(p, p.gate, token, h, p.dt_bias[h], t, count));
          if (p.family == Family::mamba2) {
            step = min(S::max(dt, S::set(p.dt_min)), S::set(p.dt_max));
            log_decay = S::mul(S::sub(S::zero(), a), step);
          } else {
            log_decay = S::mul(S::sub(S::zero(), a), dt);
          }
        }
      }
      S::store(beta + t, keep_below(step, count - t));
      if (!by_channel) S::store(g + t, keep_below(log_decay, count - t));
    }
    if (by_channel) channel_gates(p, h, a, token, count, rows, g);
  }

  static void channel_gates(const Params& p, int h, Vec a, std::int64_t token, int count, int rows,
                            float* g) {
    const int width = padded(p.dk);
    const Vec minus_a = S::sub(S::zero(), a);
    for (int t = 0; t < rows; ++t)
      for (int c = 0; c < width; c += kWidth) {
        float* to = g + static_cast<std::int64_t>(t) * width + c;
        const int n = p.dk - c;
        if (c == 0 && t < count)
          fetch_next_chunk(p.gate, p.bf16,
                           (token + t) * p.gate.row + static_cast<std::int64_t>(h) * p.dk, p.dk,
                           count);
        if (t >= count || n <= 0) {
          S::store(to, S::zero());
          continue;
        }
        const std::int64_t at = static_cast<std::int64_t>(h) * p.dk + c;
        const Vec raw =
            S::add(load_activations(p.gate.data, p.bf16, (token + t) * p.gate.row + at, n),
                   S::load_n(p.dt_bias + at, n));
        const Vec decay = p.gate_lower_bound < 0.0f
                              ? S::mul(S::set(p.gate_lower_bound), sigmoid(S::mul(a, raw)))
                              : S::mul(minus_a, softplus(raw));
        S::store(to, keep_below(decay, n));
      }
  }
};

}  // namespace attune::kernels::linear
