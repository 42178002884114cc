// A token as the recurrence meets it (layer kernels): q, k, v, decay and beta in shared memory, and
// a row of the state passed by it. With Sd = S decayed:
//   u = beta (v - Sd k) or beta v,  S = Sd + u k,  o = S q = Sd q + u (k q)
// so one pass over the registers gives both products. Eight lanes have a row of the state, 16 bytes
// each in turn: who calls this gets the same bits, whatever else it does.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/gates.cuh"

namespace attune::kernels::linear::sm90 {

/// One channel of q, k or v at one token: what it is made of. Taps: most of the convolution, whose
/// own are the last ones; 0 without one.
template <bool Bf16, int Taps>
struct ChannelInput {
  Raw<Bf16> value[Taps + 1];  ///< without a convolution the first
  float weight[Taps + 1];
  float bias;

  /// Column `at` of the plain tensor, or the channel that many behind `first`. Every load goes out,
  /// of the taps that the convolution lacks some other's: nothing here waits.
  static __device__ __forceinline__ ChannelInput load(const Params& p, const History& x,
                                                      const Activations& plain, std::int64_t token,
                                                      std::int64_t t, int first, int at) {
    ChannelInput in;
    if constexpr (Taps == 0) {
      in.value[0] = read_raw<Bf16>(plain.data, token * plain.row + at);
    } else {
      const int channel = first + at;
      const float* weight = p.conv_weight + static_cast<std::int64_t>(channel) * p.conv_kernel;
#pragma unroll
      for (int r = 0; r < Taps; ++r) {
        const int tap = max(r - (Taps - p.conv_kernel), 0);
        in.value[r] = x.raw_at<Bf16>(t + 1 - p.conv_kernel + tap, channel);
        in.weight[r] = weight[tap];
      }
      in.bias = p.conv_bias != nullptr ? p.conv_bias[channel] : 0.0f;
    }
    return in;
  }

  __device__ __forceinline__ float convolved(const Params& p) const {
    if constexpr (Taps == 0) return value_of(value[0]);
    float sum = bias;
#pragma unroll
    for (int r = 0; r < Taps; ++r)
      sum += (r >= Taps - p.conv_kernel ? weight[r] : 0.0f) * value_of(value[r]);
    return p.conv_silu ? sum * sigmoid_approx(sum) : sum;
  }
};

inline constexpr int kTokenThreads = 32 * kTokenWarps;

/// Of a channel of the convolution's state once a token has passed: what the token read but the
/// oldest, as stored.
template <int Taps>
struct Entries {
  static constexpr int kCount = Taps > 1 ? Taps - 1 : 1;
  std::uint32_t bits[kCount];

  template <bool Bf16>
  static __device__ __forceinline__ Entries behind(const ChannelInput<Bf16, Taps>& in) {
    Entries entries{};
#pragma unroll
    for (int r = 0; r + 1 < Taps; ++r) {
      if constexpr (Bf16) {
        entries.bits[r] = in.value[r + 1];
      } else {
        entries.bits[r] = std::bit_cast<std::uint32_t>(in.value[r + 1]);
      }
    }
    return entries;
  }
};

/// Of the channels of one thread of those that make a token.
template <int KeyColumns, int Taps>
struct TokenEntries {
  Entries<Taps> q[KeyColumns / kTokenThreads];
  Entries<Taps> k[KeyColumns / kTokenThreads];
  Entries<Taps> v;
};

inline constexpr int kLanesARow = 8;
inline constexpr int kTileRows = 32;  ///< of the state
inline constexpr int kTokenRows = 128;

/// Of one value head, for up to kTokenRows rows of the state.
template <int KeyColumns, bool ByChannel>
struct alignas(16) Token {
  float q[KeyColumns];
  float k[KeyColumns];
  float decay[ByChannel ? KeyColumns : 4];
  float v[kTokenRows];
  float sums[kTokenThreads / 32][4];  ///< q q, k k, k q
  float beta;
};

/// One load: what lies at the slot need not wait for the rest.
__device__ __forceinline__ Span span_at(const Span* from) {
  return std::bit_cast<Span>(*reinterpret_cast<const int4*>(from));
}

/// What a block or a part of it works on: rows of a value head's state.
struct StateRows {
  Span span;
  int place;  ///< of the span
  int head;
  int key_head;
  int first_row;
};

/// Token t of the span, q and k not yet normalised, by kTokenThreads threads. All loads go out
/// before anything waits for one. `rows`: of the state that are wanted, at most kTokenRows. Returns
/// what the convolution's state holds afterwards.
template <int KeyColumns, bool ByChannel, int Taps, bool Bf16>
__device__ __forceinline__ TokenEntries<KeyColumns, Taps> make_token(
    Token<KeyColumns, ByChannel>& to, const Params& p, const StateRows& at, int rows,
    std::int64_t t, int thread) {
  using Input = ChannelInput<Bf16, Taps>;
  const std::int64_t token = at.span.first_token + t;
  const History x = history_of(p, at.span.first_token, at.span.slot);
  const auto channel_of = [&](const Activations& plain, int first, int place) {
    return Input::load(p, x, plain, token, t, first, place);
  };
  constexpr int kChannels = KeyColumns / kTokenThreads;  ///< of q and k a thread
  const int row = min(at.first_row + thread % rows, p.dv - 1);
  const Input v_input = channel_of(p.v, p.v_channel, at.head * p.dv + row);
  Input q_input[kChannels];
  Input k_input[kChannels];
  Raw<Bf16> channel_raw[kChannels];
  float channel_bias[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    const int c = min(thread + i * kTokenThreads, p.dk - 1);
    q_input[i] = channel_of(p.q, p.q_channel, at.key_head * p.dk + c);
    k_input[i] = channel_of(p.k, p.k_channel, at.key_head * p.dk + c);
    if constexpr (ByChannel) {
      const std::int64_t gate = static_cast<std::int64_t>(at.head) * p.dk + c;
      channel_raw[i] = read_raw<Bf16>(p.gate.data, token * p.gate.row + gate);
      channel_bias[i] = p.dt_bias[gate];
    }
  }
  const float a_log = ByChannel ? p.a_log[at.head] : 0.0f;
  const RawGate<Bf16> raw = raw_gate<Bf16>(p, at.head, token);
  float qq = 0.0f;
  float kk = 0.0f;
  float kq = 0.0f;
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    const int c = thread + i * kTokenThreads;
    const bool inside = c < p.dk;
    const float q = inside ? q_input[i].convolved(p) : 0.0f;
    const float k = inside ? k_input[i].convolved(p) : 0.0f;
    to.q[c] = q;
    to.k[c] = k;
    if constexpr (ByChannel) {
      const float gate = channel_gate(p, expf(a_log), value_of(channel_raw[i]) + channel_bias[i]);
      to.decay[c] = inside ? expf(gate) : 0.0f;
    }
    qq += q * q;
    kk += k * k;
    kq += k * q;
  }
  if (thread < rows) to.v[thread] = v_input.convolved(p);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    qq += __shfl_xor_sync(0xffffffffu, qq, step);
    kk += __shfl_xor_sync(0xffffffffu, kk, step);
    kq += __shfl_xor_sync(0xffffffffu, kq, step);
  }
  if (lane_id() == 0) {
    to.sums[thread / 32][0] = qq;
    to.sums[thread / 32][1] = kk;
    to.sums[thread / 32][2] = kq;
  }
  if (thread == kTokenThreads - 1) {
    const TokenGate gate = token_gate(p, raw);
    to.beta = gate.beta;
    if constexpr (!ByChannel) to.decay[0] = expf(gate.log_decay);
  }
  TokenEntries<KeyColumns, Taps> entries;
  entries.v = Entries<Taps>::behind(v_input);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    entries.q[i] = Entries<Taps>::behind(q_input[i]);
    entries.k[i] = Entries<Taps>::behind(k_input[i]);
  }
  return entries;
}

/// What normalises a token's q and k.
struct TokenFactors {
  float q;
  float k;
  float kq;  ///< k q, both normalised
};

template <int KeyColumns, bool ByChannel>
__device__ __forceinline__ TokenFactors factors_of(const Token<KeyColumns, ByChannel>& token,
                                                   const Params& p) {
  float qq = 0.0f;
  float kk = 0.0f;
  float kq = 0.0f;
#pragma unroll
  for (int w = 0; w < kTokenThreads / 32; ++w) {
    qq += token.sums[w][0];
    kk += token.sums[w][1];
    kq += token.sums[w][2];
  }
  if (!has_delta_rule(p.family)) return {1.0f, 1.0f, kq};
  const float q = 1.0f / sqrtf((qq + 1e-6f) * static_cast<float>(p.dk));
  const float k = 1.0f / sqrtf(kk + 1e-6f);
  return {q, k, kq * (q * k)};
}

/// A lane's parts of `Rows` rows of the state.
template <int KeyColumns, int Rows>
using StatePieces = float4[Rows][KeyColumns / (4 * kLanesARow)];

/// Of a row's piece `quad`.
__device__ __forceinline__ int state_column(int quad) {
  return 4 * (lane_id() % kLanesARow) + 4 * kLanesARow * quad;
}

/// sum + x y over four columns.
__device__ __forceinline__ float add_products(float sum, const float4& x, const float4& y) {
  return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
}

/// The state passed by a token. Every sum of products is written as what it is rounded by: two
/// kernels must not fuse it in two ways. `row(i)` is where the token has v of the lane's row i, and
/// `put(i, o)` gets what the row puts out.
template <int KeyColumns, bool ByChannel, int Rows, class RowOf, class Put>
__device__ __forceinline__ void pass(StatePieces<KeyColumns, Rows>& state,
                                     const Token<KeyColumns, ByChannel>& token,
                                     const TokenFactors& factors, const Params& p, int head,
                                     RowOf row, Put put) {
  constexpr int kQuads = KeyColumns / (4 * kLanesARow);
  const bool erases = has_delta_rule(p.family);
  float sk[Rows] = {};
  float sq[Rows] = {};
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    const int c = state_column(quad);
    const float4 k = *reinterpret_cast<const float4*>(token.k + c);
    const float4 q = *reinterpret_cast<const float4*>(token.q + c);
    const float one = token.decay[0];
    float4 a = make_float4(one, one, one, one);
    if constexpr (ByChannel) a = *reinterpret_cast<const float4*>(token.decay + c);
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      float4& s = state[i][quad];
      s = make_float4(s.x * a.x, s.y * a.y, s.z * a.z, s.w * a.w);
      sk[i] = add_products(sk[i], s, k);
      sq[i] = add_products(sq[i], s, q);
    }
  }
#pragma unroll
  for (int lanes = kLanesARow / 2; lanes > 0; lanes /= 2) {
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      sk[i] += __shfl_xor_sync(0xffffffffu, sk[i], lanes);
      sq[i] += __shfl_xor_sync(0xffffffffu, sq[i], lanes);
    }
  }
  float write_k[Rows];
  const float skip = p.d_skip != nullptr ? p.d_skip[head] : 0.0f;
#pragma unroll
  for (int i = 0; i < Rows; ++i) {
    const float v = token.v[row(i)];
    const float u = token.beta * (erases ? fmaf(-sk[i], factors.k, v) : v);
    write_k[i] = u * factors.k;
    if (lane_id() % kLanesARow == 0) put(i, fmaf(skip, v, fmaf(u, factors.kq, sq[i] * factors.q)));
  }
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    const float4 k = *reinterpret_cast<const float4*>(token.k + state_column(quad));
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      float4& s = state[i][quad];
      s = make_float4(fmaf(write_k[i], k.x, s.x), fmaf(write_k[i], k.y, s.y),
                      fmaf(write_k[i], k.z, s.z), fmaf(write_k[i], k.w, s.w));
    }
  }
}

}  // namespace attune::kernels::linear::sm90
