// The rows a prompt's products read: q, k and v convolved, activated, normalised, in bf16, each
// head padded with zero columns (layer kernels). And the gates of chunks whose decay is one number
// a token.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/gates.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::linear::sm90 {

inline constexpr int kPrepareThreads = 256;

/// Eight neighbouring channels at one token.
struct Eight {
  float x[8];
};

__device__ __forceinline__ Eight read_eight(const void* data, bool bf16, std::int64_t at, int valid,
                                            bool wide) {
  Eight e;
  if (wide && valid == 8) {
    if (bf16) {
      const uint4 raw = *reinterpret_cast<const uint4*>(static_cast<const Half*>(data) + at);
      const std::uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        e.x[2 * i] = low_of(pairs[i]);
        e.x[2 * i + 1] = high_of(pairs[i]);
      }
    } else {
      const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(data) + at);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 raw = from[i];
        e.x[4 * i] = raw.x;
        e.x[4 * i + 1] = raw.y;
        e.x[4 * i + 2] = raw.z;
        e.x[4 * i + 3] = raw.w;
      }
    }
    return e;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) e.x[i] = i < valid ? read(data, bf16, at + i) : 0.0f;
  return e;
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
    const int column = head * p.num_k_heads / d.key_heads * p.dk;
    return {.plain = query ? &p.q : &p.k,
            .to = query ? &d.q : &d.k,
            .channel = (query ? p.q_channel : p.k_channel) + column,
            .column = column,
            .valid = p.dk,
            .columns = d.key_columns,
            .head = head,
            .normalise = delta,
            .scale = query ? 1.0f / sqrtf(static_cast<float>(p.dk)) : 1.0f};
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

/// Taps: most of the convolution; it reads the last ones.
template <int Taps>
__device__ void prepare_rows(const PromptParams& d, const Chunk& chunk, const Unit& unit) {
  const Params& p = d.p;
  const int eights = unit.columns / 8;
  const int together = kPrepareThreads / eights;  // rows at once
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= eights * together) return;
  const int c = thread % eights * 8;
  const int valid = min(8, max(0, unit.valid - c));
  const int channel = unit.channel + c;

  float weight[Taps][8];
  float bias[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const bool inside = i < valid && p.conv_kernel > 0;
    bias[i] = inside && p.conv_bias != nullptr ? p.conv_bias[channel + i] : 0.0f;
#pragma unroll
    for (int r = 0; r < Taps; ++r) {
      const int tap = r - (Taps - p.conv_kernel);
      weight[r][i] =
          inside && tap >= 0
              ? p.conv_weight[static_cast<std::int64_t>(channel + i) * p.conv_kernel + tap]
              : 0.0f;
    }
  }

  const History history = history_of(p, chunk.first_token - chunk.before, chunk.slot);
  for (int row = thread / eights; row < kChunk; row += together) {
    const bool inside = row < chunk.count;
    const std::int64_t token = chunk.first_token + row;
    Eight y{};
    if (inside && valid > 0) {
      if (p.conv_kernel == 0) {
        y = read_eight(unit.plain->data, p.bf16, token * unit.plain->row + unit.column + c, valid,
                       d.wide_rows);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) y.x[i] = bias[i];
#pragma unroll
        for (int r = 0; r < Taps; ++r) {
          if (r < Taps - p.conv_kernel) continue;
          const std::int64_t t = chunk.before + row - (Taps - 1) + r;
          Eight x{};
          if (t >= 0) {
            x = read_eight(p.conv_input.data, p.bf16,
                           (history.first_token + t) * p.conv_input.row + channel, valid,
                           d.wide_rows);
          } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) x.x[i] = i < valid ? history.at(t, channel + i) : 0.0f;
          }
#pragma unroll
          for (int i = 0; i < 8; ++i) y.x[i] += weight[r][i] * x.x[i];
        }
        if (p.conv_silu) {
#pragma unroll
          for (int i = 0; i < 8; ++i) y.x[i] *= sigmoid(y.x[i]);
        }
      }
    }
    if (unit.normalise) {
      // A row's threads are neighbours, 16 or 32 of them; every thread of the block comes here.
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += y.x[i] * y.x[i];
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, sum, step);
        if (step < eights) sum += other;
      }
      const float factor = unit.scale / sqrtf(sum + 1e-6f);
#pragma unroll
      for (int i = 0; i < 8; ++i) y.x[i] *= factor;
    }
    if (inside)
      *reinterpret_cast<uint4*>(unit.to->data + token * unit.to->token_stride +
                                unit.head * unit.to->head_stride + c) =
          make_uint4(pack(y.x[0], y.x[1]), pack(y.x[2], y.x[3]), pack(y.x[4], y.x[5]),
                     pack(y.x[6], y.x[7]));
  }
}

/// Grid: chunks, heads of q, k and v.
template <int Taps>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const __grid_constant__ PromptParams d) {
  prepare_rows<Taps>(d, d.chunks[blockIdx.x], unit_of(d, static_cast<int>(blockIdx.y)));
}

inline constexpr int kGatesThreads = kChunk;

/// Sum over this and all earlier threads of a block of kChunk; `half` is shared memory.
__device__ __forceinline__ float sum_before(float x, float* half) {
  const int lane = lane_id();
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float earlier = __shfl_up_sync(0xffffffffu, x, static_cast<unsigned>(step));
    if (lane >= step) x += earlier;
  }
  if (threadIdx.x == 31) *half = x;
  __syncthreads();
  return threadIdx.x < 32 ? x : x + *half;
}

/// Grid: chunks, value heads.
static __global__ void __launch_bounds__(kGatesThreads)
    gates_kernel(const __grid_constant__ PromptParams d) {
  auto* shared = reinterpret_cast<float*>(ptx::dynamic_shared<128>());
  const Chunk chunk = d.chunks[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y);
  const int t = static_cast<int>(threadIdx.x);
  TokenGate gate{0.0f, 0.0f};
  if (t < chunk.count) gate = token_gate(d.p, head, chunk.first_token + t);
  const float sum = sum_before(gate.log_decay, shared);
  if (t == kChunk - 1) shared[1] = sum;
  __syncthreads();
  float* to = d.gates +
              (static_cast<std::int64_t>(blockIdx.x) * d.p.num_v_heads + head) * kNumGates * kChunk;
  to[kLogDecay * kChunk + t] = sum;
  to[kBeta * kChunk + t] = gate.beta;
  to[kSince * kChunk + t] = expf(sum);
  to[kUntil * kChunk + t] = expf(shared[1] - sum);
}

}  // namespace attune::kernels::linear::sm90
