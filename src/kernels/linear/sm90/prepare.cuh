// The rows a prompt's products read: q, k and v convolved, activated, normalised, in bf16, each
// head padded with zero columns (layer kernels). And the gates of chunks whose decay is one number
// a token.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/gates.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::linear::sm90 {

inline constexpr int kPrepareThreads = 128;

/// Four neighbouring channels at one token, as stored.
struct Four {
  uint2 word;

  __device__ __forceinline__ float get(int i) const {
    const std::uint32_t pair = i / 2 == 0 ? word.x : word.y;
    return i % 2 == 0 ? low_of(pair) : high_of(pair);
  }
};

/// Those from `valid` on become zero.
template <class Read>
__device__ __forceinline__ Four gather_four(int valid, Read read_one) {
  std::uint32_t word[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Half low = 2 * i < valid ? read_one(2 * i) : Half{0};
    const Half high = 2 * i + 1 < valid ? read_one(2 * i + 1) : Half{0};
    word[i] = low | static_cast<std::uint32_t>(high) << 16;
  }
  return {make_uint2(word[0], word[1])};
}

__device__ __forceinline__ Four read_four(const void* data, std::int64_t at, int valid, bool wide) {
  const Half* from = static_cast<const Half*>(data) + at;
  if (wide && valid == 4) return {*reinterpret_cast<const uint2*>(from)};
  return gather_four(valid, [&](int i) { return from[i]; });
}

/// What a block of prepare works on: rows of one head of q, k or v.
struct Unit {
  const Activations* plain;
  const RowsOf* to;
  int channel;  ///< first of the head, in conv_input
  int column;   ///< first of the head, in the plain tensor
  int valid;    ///< channels of the head
  int columns;  ///< with padding
  int head;     ///< of `to`
  bool normalise;
  float scale;
};

__device__ __forceinline__ Unit unit_of(const PromptParams& d, int index) {
  const Params& p = d.p;
  const bool delta = has_delta_rule(p.family);
  if (index < 2 * d.key_heads) {
    const bool query = index < d.key_heads;
    const int head = query ? index : index - d.key_heads;
    // kda has a row of keys a value head.
    const int key_head = d.key_heads == p.num_k_heads ? head : head / (d.key_heads / p.num_k_heads);
    const int column = key_head * p.dk;
    return {.plain = query ? &p.q : &p.k,
            .to = query ? &d.q : &d.k,
            .channel = (query ? p.q_channel : p.k_channel) + column,
            .column = column,
            .valid = p.dk,
            .columns = d.key_columns,
            .head = head,
            .normalise = delta,
            .scale = query ? rsqrtf(static_cast<float>(p.dk)) : 1.0f};
  }
  const int head = index - 2 * d.key_heads;
  return {.plain = &p.v,
          .to = &d.v,
          .channel = p.v_channel + head * p.dv,
          .column = head * p.dv,
          .valid = p.dv,
          .columns = d.value_columns,
          .head = head,
          .normalise = false,
          .scale = 1.0f};
}

/// Rows of a chunk by threads that own four channels each and kRun neighbouring tokens: all that
/// they read is asked for before the first product. Taps: most of the convolution, whose own are
/// the last ones; 0 without one.
template <int Taps>
struct Prepare {
  static constexpr int kRun = 8;  ///< rows of a tile turn alike every eight
  static constexpr int kBefore = Taps > 0 ? Taps - 1 : 0;

  const PromptParams& d;
  const Params& p;
  const Chunk& chunk;
  const Unit& unit;
  int c;        ///< first channel of the thread, of the head's
  int channel;  ///< the same, of conv_input
  int valid;    ///< channels of the four that exist
  float weight[Taps > 0 ? Taps : 1][4];
  float bias[4];

  __device__ __forceinline__ Prepare(const PromptParams& params, const Chunk& at, const Unit& of,
                                     int first)
      : d(params),
        p(params.p),
        chunk(at),
        unit(of),
        c(first),
        channel(of.channel + first),
        valid(min(4, max(0, of.valid - first))) {}

  __device__ __forceinline__ void load_weights() {
    if (Taps == 4 && p.conv_kernel == 4 && valid == 4 && d.wide_weight) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 w = *reinterpret_cast<const float4*>(p.conv_weight + (channel + i) * 4LL);
        weight[0][i] = w.x;
        weight[1 % Taps][i] = w.y;
        weight[2 % Taps][i] = w.z;
        weight[3 % Taps][i] = w.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* from = p.conv_weight + static_cast<std::int64_t>(channel + i) * p.conv_kernel;
#pragma unroll
        for (int r = 0; r < Taps; ++r) {
          const int tap = r - (Taps - p.conv_kernel);
          weight[r][i] = i < valid && tap >= 0 ? from[tap] : 0.0f;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bias[i] = i < valid && p.conv_bias != nullptr ? p.conv_bias[channel + i] : 0.0f;
  }

  /// The row `t` of the request's inputs; zeros where a tap reaches back further than its own.
  __device__ __forceinline__ Four input(const History& history, std::int64_t t, bool wanted) const {
    if (!wanted || valid == 0) return {};
    if constexpr (Taps == 0) {
      return read_four(unit.plain->data,
                       (history.first_token + t) * unit.plain->row + unit.column + c, valid,
                       d.wide_rows);
    }
    if (t >= 0)
      return read_four(p.conv_input.data, (history.first_token + t) * p.conv_input.row + channel,
                       valid, d.wide_rows);
    const std::int64_t entry = t + p.conv_kernel - 1;
    if (entry < 0) return {};
    const Half* state = static_cast<const Half*>(p.conv_state) + history.state_begin + entry;
    return gather_four(valid, [&](int i) { return state[(channel + i) * (p.conv_kernel - 1)]; });
  }

  using Rows = float[kRun][4];

  __device__ __forceinline__ void load_rows(Four (&x)[kRun + kBefore], int row) const {
    if (d.wide_rows && valid == 4 && chunk.before + row >= kBefore && row + kRun <= chunk.count) {
      const Activations& from = Taps == 0 ? *unit.plain : p.conv_input;
      const Half* at = static_cast<const Half*>(from.data) +
                       (chunk.first_token + row - kBefore) * from.row +
                       (Taps == 0 ? unit.column + c : channel);
#pragma unroll
      for (int i = 0; i < kRun + kBefore; ++i) {
        x[i] = {*reinterpret_cast<const uint2*>(at)};
        at += from.row;
      }
      return;
    }
    const History history = history_of(p, chunk.first_token - chunk.before, chunk.slot);
#pragma unroll
    for (int i = 0; i < kRun + kBefore; ++i)
      x[i] = input(history, chunk.before + row + i - kBefore, row + i - kBefore < chunk.count);
  }

  __device__ __forceinline__ void convolve(Rows& y, const Four (&x)[kRun + kBefore]) const {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if constexpr (Taps == 0) {
          y[i][e] = x[i].get(e);
        } else {
          y[i][e] = bias[e];
#pragma unroll
          for (int r = 0; r < Taps; ++r) y[i][e] += weight[r][e] * x[i + r].get(e);
        }
      }
      if (Taps > 0 && p.conv_silu) {
#pragma unroll
        for (int e = 0; e < 4; ++e) y[i][e] *= sigmoid_approx(y[i][e]);
      }
    }
  }

  /// Rows `row` … row + kRun - 1.
  __device__ __forceinline__ void run(int row) {
    Four x[kRun + kBefore];
    load_rows(x, row);
    if constexpr (Taps > 0) load_weights();
    Rows y;
    convolve(y, x);
    if (unit.normalise) normalise(y);
    // In tiles a piece's place changes from row to row.
    const bool tiles = has_delta_rule(p.family);
    Half* to = tiles ? unit.to->tiles(chunk.index, unit.head) + c / 64 * kPanel + row * 64 + c % 8
                     : unit.to->data + (chunk.first_token + row) * unit.to->token_stride +
                           unit.head * unit.to->head_stride + c;
    const std::int64_t stride = tiles ? 64 : unit.to->token_stride;
    const int piece = c / 8 % 8;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const bool inside = row + i < chunk.count;
      if (inside || tiles)
        *reinterpret_cast<uint2*>(to + (tiles ? piece ^ i : 0) * 8) =
            inside ? make_uint2(pack(y[i][0], y[i][1]), pack(y[i][2], y[i][3])) : make_uint2(0, 0);
      to += stride;
    }
  }

  /// A warp has whole rows of 128; every thread of it comes here. Halves of the lanes give away
  /// what the others sum up, until a lane has one row's sum.
  __device__ __forceinline__ void normalise(Rows& y) const {
    float sums[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i)
      sums[i] = y[i][0] * y[i][0] + y[i][1] * y[i][1] + y[i][2] * y[i][2] + y[i][3] * y[i][3];
#pragma unroll
    for (int half = kRun / 2; half > 0; half /= 2) {
      const bool upper = (lane_id() & half) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float given = upper ? sums[i] : sums[i + half];
        const float kept = upper ? sums[i + half] : sums[i];
        sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, half);
      }
    }
#pragma unroll
    for (int step = kRun; step < 32; step *= 2)
      sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], step);
    const float own = unit.scale * rsqrtf(sums[0] + 1e-6f);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const float factor = __shfl_sync(0xffffffffu, own, i);
#pragma unroll
      for (int e = 0; e < 4; ++e) y[i][e] *= factor;
    }
  }
};

inline constexpr int kPrepareChunks = 32768;  ///< in a grid's second dimension

/// Grid: heads of q, k and v, chunks in two dimensions: neighbours read the same lines.
template <int Taps>
__global__ void __launch_bounds__(kPrepareThreads, Taps <= 4 ? 6 : 4)
    prepare_kernel(const __grid_constant__ PromptParams d) {
  using Kernel = Prepare<Taps>;
  const int index = static_cast<int>(blockIdx.z * kPrepareChunks + blockIdx.y);
  if (index >= d.num_chunks) return;
  const Chunk chunk = d.chunks[index];
  const Unit unit = unit_of(d, static_cast<int>(blockIdx.x));
  // Every row of fours has kChunk / kRun runs; the threads of a row are neighbours.
  const int fours = unit.columns / 4;
  const int end = fours * (kChunk / Kernel::kRun);
  for (int i = static_cast<int>(threadIdx.x); i < end; i += kPrepareThreads)
    Kernel(d, chunk, unit, i % fours * 4).run(i / fours * Kernel::kRun);
}

inline constexpr int kGatesThreads = 128;  ///< a warp a head, a lane two tokens

/// Grid: chunks, value heads.
static __global__ void __launch_bounds__(kGatesThreads)
    gates_kernel(const __grid_constant__ PromptParams d) {
  const int head = static_cast<int>(blockIdx.y * (kGatesThreads / 32) + threadIdx.x / 32);
  if (head >= d.p.num_v_heads) return;
  const Chunk chunk = d.chunks[blockIdx.x];
  const int t = 2 * lane_id();
  TokenGate gate[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const RawGate<true> raw =
        raw_gate<true>(d.p, head, chunk.first_token + min(t + i, chunk.count - 1));
    gate[i] = t + i < chunk.count ? token_gate(d.p, raw) : TokenGate{0.0f, 0.0f};
  }
  const DecaySums sum = sum_decays(gate[0].log_decay, gate[1].log_decay);
  float* to =
      d.gates + t +
      (static_cast<std::int64_t>(chunk.index) * d.p.num_v_heads + head) * kNumGates * kChunk;
  const auto put = [&](Gate at, float x, float y) {
    *reinterpret_cast<float2*>(to + at * kChunk) = make_float2(x, y);
  };
  put(kLogDecay, sum.first, sum.second);
  put(kBeta, gate[0].beta, gate[1].beta);
  put(kSince, expf(sum.first), expf(sum.second));
  put(kUntil, expf(sum.end - sum.first), expf(sum.end - sum.second));
}

}  // namespace attune::kernels::linear::sm90
