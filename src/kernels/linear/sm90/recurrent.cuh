// The recurrence token by token, for spans of a few tokens (layer kernels): bound by reading and
// writing the state once.
//
// A block has one span, one value head and up to kMaxTiles tiles of kRows rows of the state, the
// next ones asked for before one is worked on. Eight lanes hold a row, 16 bytes each in turn,
// from its first token to its last. With Sd = S decayed:
//   u = beta (v - Sd k) or beta v,  S = Sd + u k,  o = S q = Sd q + u (k q)
// so one pass over the registers gives both products.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/gates.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"

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

template <int KeyColumns, bool ByChannel, int Taps>
struct Recurrent {
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = KeyColumns == 256 ? 2 : Taps <= 4 ? 5 : 3;  ///< of an SM
  static constexpr int kLanesARow = 8;
  static constexpr int kRowsALane = 2;
  static constexpr int kRows = kThreads / kLanesARow * kRowsALane;
  static constexpr int kMaxTiles = kThreads / kRows;        ///< of kRows rows, a block
  static constexpr int kAhead = KeyColumns == 128 ? 2 : 1;  ///< tiles that are asked for in advance
  static constexpr int kQuads = KeyColumns / (4 * kLanesARow);  ///< 16-byte pieces a lane and row

  struct Shared {
    /// Tiles on their way: what a thread fetched it alone reads.
    float4 coming[kAhead][kRowsALane * kQuads][kThreads];
    float q[KeyColumns];
    float k[KeyColumns];
    float decay[ByChannel ? KeyColumns : 1];
    float v[kRows * kMaxTiles];
    float sums[kThreads / 32][4];  ///< q q, k k, k q
    float beta;
  };

  const DecodeParams& d;
  const Params& p;
  Shared& shared;
  Span span;
  int head;
  int key_head;
  int first_row;
  int tiles;

  __device__ Recurrent(const DecodeParams& params, Shared& s)
      : d(params),
        p(params.p),
        shared(s),
        span(span_at(params.spans + blockIdx.x)),
        head(static_cast<int>(blockIdx.z)),
        key_head(head / params.heads_a_key),
        first_row(static_cast<int>(blockIdx.y) * kRows * params.tiles),
        tiles(min(params.tiles, (p.dv - first_row + kRows - 1) / kRows)) {}

  /// One load: what lies at the slot need not wait for the rest.
  static __device__ __forceinline__ Span span_at(const Span* from) {
    return std::bit_cast<Span>(*reinterpret_cast<const int4*>(from));
  }

  static __device__ __forceinline__ int row_of(int i) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    return warp * (kRows / (kThreads / 32)) + i * (32 / kLanesARow) + lane_id() / kLanesARow;
  }
  static __device__ __forceinline__ int column_of(int quad) {
    return 4 * (lane_id() % kLanesARow) + 4 * kLanesARow * quad;
  }

  __device__ __forceinline__ float* state_row(int row) const {
    return p.state + span.slot * p.state_slot +
           (static_cast<std::int64_t>(head) * p.dv + row) * p.dk;
  }

  using State = float4[kRowsALane][kQuads];

  __device__ __forceinline__ float4 load_quad(const float* row, int c) const {
    if (d.wide_state)
      return c < p.dk ? *reinterpret_cast<const float4*>(row + c) : make_float4(0, 0, 0, 0);
    return make_float4(c < p.dk ? row[c] : 0.0f, c + 1 < p.dk ? row[c + 1] : 0.0f,
                       c + 2 < p.dk ? row[c + 2] : 0.0f, c + 3 < p.dk ? row[c + 3] : 0.0f);
  }

  [[nodiscard]] __device__ __forceinline__ bool has_whole_rows() const {
    return d.wide_state && p.dk == KeyColumns;
  }
  /// Rows beyond the state's are the last one's, and are not stored.
  [[nodiscard]] __device__ __forceinline__ const float* loaded_row(int tile, int i) const {
    return state_row(min(first_row + tile * kRows + row_of(i), p.dv - 1));
  }

  /// A group of copies, empty where there is nothing left to ask for.
  __device__ __forceinline__ void ask_for(int tile) const {
    if (tile < tiles && has_whole_rows()) {
#pragma unroll
      for (int i = 0; i < kRowsALane; ++i) {
        const float* row = loaded_row(tile, i);
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad)
          ptx::cp_async_16(&shared.coming[tile % kAhead][i * kQuads + quad][threadIdx.x],
                           row + column_of(quad));
      }
    }
    ptx::cp_async_commit();
  }

  __device__ __forceinline__ void take(State& state, int tile) const {
    ptx::cp_async_wait<kAhead - 1>();
    const bool whole = has_whole_rows();
#pragma unroll
    for (int i = 0; i < kRowsALane; ++i) {
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad)
        state[i][quad] = whole ? shared.coming[tile % kAhead][i * kQuads + quad][threadIdx.x]
                               : load_quad(loaded_row(tile, i), column_of(quad));
    }
  }

  __device__ __forceinline__ void store_quad(float* row, int c, float4 x) const {
    if (d.wide_state) {
      if (c < p.dk) *reinterpret_cast<float4*>(row + c) = x;
      return;
    }
    if (c < p.dk) row[c] = x.x;
    if (c + 1 < p.dk) row[c + 1] = x.y;
    if (c + 2 < p.dk) row[c + 2] = x.z;
    if (c + 3 < p.dk) row[c + 3] = x.w;
  }

  __device__ __forceinline__ void store_state(const State& state, int tile) const {
#pragma unroll
    for (int i = 0; i < kRowsALane; ++i) {
      const int row = first_row + tile * kRows + row_of(i);
      if (row >= p.dv) continue;
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad)
        store_quad(state_row(row), column_of(quad), state[i][quad]);
    }
  }
  /// q, k, v, decay and beta of token t into shared memory, q and k not yet normalised. All loads
  /// go out before anything waits for one.
  template <bool Bf16>
  __device__ __forceinline__ void prepare(std::int64_t t) {
    using Input = ChannelInput<Bf16, Taps>;
    const int thread = static_cast<int>(threadIdx.x);
    const std::int64_t token = span.first_token + t;
    const History x = history_of(p, span.first_token, span.slot);
    const auto channel_of = [&](const Activations& plain, int first, int at) {
      return Input::load(p, x, plain, token, t, first, at);
    };
    constexpr int kChannels = KeyColumns / kThreads;  ///< of q and k a thread
    const int row = min(first_row + thread % (kRows * d.tiles), p.dv - 1);
    const Input v_input = channel_of(p.v, p.v_channel, head * p.dv + row);
    Input q_input[kChannels];
    Input k_input[kChannels];
    Raw<Bf16> channel_raw[kChannels];
    float channel_bias[kChannels];
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const int c = min(thread + i * kThreads, p.dk - 1);
      q_input[i] = channel_of(p.q, p.q_channel, key_head * p.dk + c);
      k_input[i] = channel_of(p.k, p.k_channel, key_head * p.dk + c);
      if constexpr (ByChannel) {
        const std::int64_t gate = static_cast<std::int64_t>(head) * p.dk + c;
        channel_raw[i] = read_raw<Bf16>(p.gate.data, token * p.gate.row + gate);
        channel_bias[i] = p.dt_bias[gate];
      }
    }
    const float a_log = ByChannel ? p.a_log[head] : 0.0f;
    const RawGate<Bf16> raw = raw_gate<Bf16>(p, head, token);
    float qq = 0.0f;
    float kk = 0.0f;
    float kq = 0.0f;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const int c = thread + i * kThreads;
      const bool inside = c < p.dk;
      const float q = inside ? q_input[i].convolved(p) : 0.0f;
      const float k = inside ? k_input[i].convolved(p) : 0.0f;
      shared.q[c] = q;
      shared.k[c] = k;
      if constexpr (ByChannel) {
        const float gate = channel_gate(p, expf(a_log), value_of(channel_raw[i]) + channel_bias[i]);
        shared.decay[c] = inside ? expf(gate) : 0.0f;
      }
      qq += q * q;
      kk += k * k;
      kq += k * q;
    }
    if (thread < kRows * d.tiles) shared.v[thread] = v_input.convolved(p);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      qq += __shfl_xor_sync(0xffffffffu, qq, step);
      kk += __shfl_xor_sync(0xffffffffu, kk, step);
      kq += __shfl_xor_sync(0xffffffffu, kq, step);
    }
    if (lane_id() == 0) {
      shared.sums[thread / 32][0] = qq;
      shared.sums[thread / 32][1] = kk;
      shared.sums[thread / 32][2] = kq;
    }
    if (thread == kThreads - 1) {
      const TokenGate gate = token_gate(p, raw);
      shared.beta = gate.beta;
      if constexpr (!ByChannel) shared.decay[0] = expf(gate.log_decay);
    }
  }

  __device__ __forceinline__ void step(State& state, std::int64_t t, int tile) {
    float qq = 0.0f;
    float kk = 0.0f;
    float kq = 0.0f;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      qq += shared.sums[w][0];
      kk += shared.sums[w][1];
      kq += shared.sums[w][2];
    }
    const bool erases = has_delta_rule(p.family);
    const float q_factor = erases ? 1.0f / sqrtf((qq + 1e-6f) * static_cast<float>(p.dk)) : 1.0f;
    const float k_factor = erases ? 1.0f / sqrtf(kk + 1e-6f) : 1.0f;
    kq *= q_factor * k_factor;

    float sk[kRowsALane] = {};
    float sq[kRowsALane] = {};
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const int c = column_of(quad);
      const float4 k = *reinterpret_cast<const float4*>(shared.k + c);
      const float4 q = *reinterpret_cast<const float4*>(shared.q + c);
      const float one = shared.decay[0];
      float4 a = make_float4(one, one, one, one);
      if constexpr (ByChannel) a = *reinterpret_cast<const float4*>(shared.decay + c);
#pragma unroll
      for (int i = 0; i < kRowsALane; ++i) {
        float4& s = state[i][quad];
        s = make_float4(s.x * a.x, s.y * a.y, s.z * a.z, s.w * a.w);
        sk[i] += s.x * k.x + s.y * k.y + s.z * k.z + s.w * k.w;
        sq[i] += s.x * q.x + s.y * q.y + s.z * q.z + s.w * q.w;
      }
    }
#pragma unroll
    for (int lanes = kLanesARow / 2; lanes > 0; lanes /= 2) {
#pragma unroll
      for (int i = 0; i < kRowsALane; ++i) {
        sk[i] += __shfl_xor_sync(0xffffffffu, sk[i], lanes);
        sq[i] += __shfl_xor_sync(0xffffffffu, sq[i], lanes);
      }
    }
    float write_k[kRowsALane];
    const float skip = p.d_skip != nullptr ? p.d_skip[head] : 0.0f;
#pragma unroll
    for (int i = 0; i < kRowsALane; ++i) {
      const int row = tile * kRows + row_of(i);
      const float v = shared.v[row];
      const float u = shared.beta * (erases ? v - sk[i] * k_factor : v);
      write_k[i] = u * k_factor;
      const int column = first_row + row;
      if (lane_id() % kLanesARow == 0 && column < p.dv)
        write(p.o, p.bf16,
              (span.first_token + t) * p.o_row + static_cast<std::int64_t>(head) * p.dv + column,
              sq[i] * q_factor + u * kq + skip * v);
    }
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const float4 k = *reinterpret_cast<const float4*>(shared.k + column_of(quad));
#pragma unroll
      for (int i = 0; i < kRowsALane; ++i) {
        float4& s = state[i][quad];
        s = make_float4(s.x + write_k[i] * k.x, s.y + write_k[i] * k.y, s.z + write_k[i] * k.z,
                        s.w + write_k[i] * k.w);
      }
    }
  }

  __device__ void run() {
    if (span.slot < 0 || span.num_tokens == 0) return;
    for (int tile = 0; tile < kAhead; ++tile) ask_for(tile);
    for (int tile = 0; tile < tiles; ++tile) {
      State state;
      for (int t = 0; t < span.num_tokens; ++t) {
        if (tile == 0 || span.num_tokens > 1) {
          __syncthreads();  // the last step is done with what it shared
          if (p.bf16) {
            prepare<true>(t);
          } else {
            prepare<false>(t);
          }
          __syncthreads();
        }
        if (t == 0) take(state, tile);
        step(state, t, tile);
      }
      ask_for(tile + kAhead);
      store_state(state, tile);
    }
  }
};

/// Grid: spans, rows of the state, value heads.
template <int KeyColumns, bool ByChannel, int Taps>
__global__ void __launch_bounds__(Recurrent<KeyColumns, ByChannel, Taps>::kThreads,
                                  Recurrent<KeyColumns, ByChannel, Taps>::kBlocks)
    recurrent_kernel(const __grid_constant__ DecodeParams params) {
  using Kernel = Recurrent<KeyColumns, ByChannel, Taps>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<128>())).run();
}

}  // namespace attune::kernels::linear::sm90
