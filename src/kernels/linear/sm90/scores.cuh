// What a chunk of the delta rule needs before it has a state (layer kernels): with
// s_ij(x) = x_i . k_j e^(G_i - G_j),
//   P_ij = s_ij(q), j <= i     A_ij = beta_i s_ij(k), j < i     T = (I + A)^-1 diag(beta)
// A block has one chunk and one key head; a warp 16 rows. Decays by channel (kda) are applied to
// the operands, the others to the products, which then serve all value heads of the key head.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/gates.cuh"
#include "kernels/linear/sm90/unit_lower.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::linear::sm90 {

template <int KeyColumns, bool ByChannel>
struct Scores {
  static constexpr int kThreads = 32 * kBlocks;
  static constexpr int kSums = ByChannel ? KeyColumns + 8 : 1;  ///< padded against bank conflicts
  /// With decays up to e^kStrong inside a block both factors of every pair stay finite. The safe
  /// gate allows 16 * 5.
  static constexpr float kStrong = 80.5f;

  struct Shared {
    Half q[kChunk * KeyColumns];
    Half k[kChunk * KeyColumns];
    LowerShared lower;
    float g[ByChannel ? kChunk : 1][kSums];  ///< log decay summed, by channel
    float log_decay[kChunk];
    float beta[kChunk];
  };

  const PromptParams& d;
  const Params& p;
  Shared& shared;
  Chunk chunk;
  int key_head;
  int warp;

  __device__ Scores(const PromptParams& params, Shared& s)
      : d(params),
        p(params.p),
        shared(s),
        chunk(params.chunks[blockIdx.x]),
        key_head(static_cast<int>(blockIdx.y)),
        warp(static_cast<int>(threadIdx.x / 32)) {}

  /// Products of this warp's 16 rows with the tokens up to them, 8 columns each.
  struct Products {
    float kk[kChunk / 8][4];
    float qk[kChunk / 8][4];
  };

  __device__ __forceinline__ std::int64_t chunk_head(int head) const {
    return static_cast<std::int64_t>(blockIdx.x) * p.num_v_heads + head;
  }

  __device__ void multiply_plain(Products& x) const {
#pragma unroll
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      std::uint32_t q[4];
      std::uint32_t k[4];
      load_a<KeyColumns>(q, shared.q, 16 * warp, 16 * ks);
      load_a<KeyColumns>(k, shared.k, 16 * warp, 16 * ks);
#pragma unroll
      for (int nb = 0; nb < kBlocks; ++nb) {
        if (nb > warp) continue;
        std::uint32_t b[4];
        load_b<KeyColumns>(b, shared.k, 16 * nb, 16 * ks);
        add_products(x, nb, q, k, b);
      }
    }
  }

  static __device__ __forceinline__ void add_products(Products& x, int nb,
                                                      const std::uint32_t (&q)[4],
                                                      const std::uint32_t (&k)[4],
                                                      const std::uint32_t (&b)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      multiply(x.kk[2 * nb + half], k, b[2 * half], b[2 * half + 1]);
      multiply(x.qk[2 * nb + half], q, b[2 * half], b[2 * half + 1]);
    }
  }

  // ---- decays by channel

  /// A thread a channel; its raw gates are loaded sixteen tokens at a time.
  __device__ void sum_channel_gates() {
    static_assert(KeyColumns == kThreads);
    const int c = static_cast<int>(threadIdx.x);
    const std::int64_t channel = static_cast<std::int64_t>(key_head) * p.dk + min(c, p.dk - 1);
    const auto* raw =
        static_cast<const Half*>(p.gate.data) + chunk.first_token * p.gate.row + channel;
    const float a = expf(p.a_log[key_head]);
    const float bias = p.dt_bias[channel];
    float sum = 0.0f;
#pragma unroll 1
    for (int first = 0; first < kChunk; first += kBlock) {
      Half loaded[kBlock];
#pragma unroll
      for (int i = 0; i < kBlock; ++i)
        loaded[i] = first + i < chunk.count ? raw[(first + i) * p.gate.row] : Half{0};
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        const float gate = channel_gate_approx(p, a, widen(loaded[i]) + bias);
        if (c < p.dk && first + i < chunk.count) sum += gate;
        shared.g[first + i][c] = sum;
      }
    }
    d.end_decay[chunk_head(key_head) * KeyColumns + c] = expf(sum);
  }

  /// G just before this warp's rows.
  __device__ __forceinline__ float2 reference(int c) const {
    return warp == 0 ? make_float2(0.0f, 0.0f)
                     : *reinterpret_cast<const float2*>(&shared.g[16 * warp - 1][c]);
  }

  static __device__ __forceinline__ std::uint32_t scaled(std::uint32_t pair, float2 log_factor) {
    return pack(low_of(pair) * exp_approx(log_factor.x), high_of(pair) * exp_approx(log_factor.y));
  }

  [[nodiscard]] __device__ bool decays_strongly() const {
    bool strong = false;
    for (int c = 2 * lane_id(); c < KeyColumns; c += 64) {
      const float2 before = reference(c);
      const float2 after = *reinterpret_cast<const float2*>(&shared.g[16 * warp + 15][c]);
      strong = strong || before.x - after.x > kStrong || before.y - after.y > kStrong;
    }
    return __any_sync(0xffffffffu, strong ? 1 : 0) != 0;
  }

  __device__ void multiply_by_channel(Products& x, bool strong) const {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
#pragma unroll 1
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      std::uint32_t q[4];
      std::uint32_t k[4];
      load_a<KeyColumns>(q, shared.q, 16 * warp, 16 * ks);
      load_a<KeyColumns>(k, shared.k, 16 * warp, 16 * ks);
      float2 ref[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) ref[half] = reference(16 * ks + 8 * half + 2 * j);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float2 sum = *reinterpret_cast<const float2*>(
            &shared.g[16 * warp + g + 8 * (r % 2)][16 * ks + 8 * (r / 2) + 2 * j]);
        const float2 since = make_float2(sum.x - ref[r / 2].x, sum.y - ref[r / 2].y);
        const float2 factor = make_float2(exp_approx(since.x), exp_approx(since.y));
        q[r] = pack(low_of(q[r]) * factor.x, high_of(q[r]) * factor.y);
        k[r] = pack(low_of(k[r]) * factor.x, high_of(k[r]) * factor.y);
      }
#pragma unroll
      for (int nb = 0; nb < kBlocks; ++nb) {
        if (nb > warp || (strong && nb == warp)) continue;
        std::uint32_t b[4];
        load_b<KeyColumns>(b, shared.k, 16 * nb, 16 * ks);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float2 sum = *reinterpret_cast<const float2*>(
              &shared.g[16 * nb + g + 8 * (r / 2)][16 * ks + 8 * (r % 2) + 2 * j]);
          b[r] = scaled(b[r], make_float2(ref[r % 2].x - sum.x, ref[r % 2].y - sum.y));
        }
        add_products(x, nb, q, k, b);
      }
    }
  }

  /// The diagonal block of a chunk whose decay inside it spans too much for two factors: every pair
  /// with the difference of exponents, channel by channel.
  __device__ void multiply_diagonal(Products& x) const {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
    float kk[2][4] = {};
    float qk[2][4] = {};
#pragma unroll 1
    for (int c = 0; c < KeyColumns; ++c) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = 16 * warp + g + 8 * (e / 2);
          const int column = 16 * warp + 8 * n + 2 * j + e % 2;
          const float decayed = widen(shared.k[element_at<KeyColumns>(column, c)]) *
                                exp_approx(fminf(shared.g[row][c] - shared.g[column][c], 0.0f));
          kk[n][e] += widen(shared.k[element_at<KeyColumns>(row, c)]) * decayed;
          qk[n][e] += widen(shared.q[element_at<KeyColumns>(row, c)]) * decayed;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 != warp) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        x.kk[n][e] = n % 2 == 0 ? kk[0][e] : kk[1][e];
        x.qk[n][e] = n % 2 == 0 ? qk[0][e] : qk[1][e];
      }
    }
  }

  /// Rows of 16-byte pieces multiplied by decays, for the products with the state.
  __device__ void write_decayed_rows() const {
    constexpr int kPieces = KeyColumns / 8;
    for (int i = static_cast<int>(threadIdx.x); i < chunk.count * kPieces; i += kThreads) {
      const int row = i / kPieces;
      const int piece = i % kPieces;
      const uint4 q4 = *reinterpret_cast<const uint4*>(shared.q + piece_at<KeyColumns>(row, piece));
      const uint4 k4 = *reinterpret_cast<const uint4*>(shared.k + piece_at<KeyColumns>(row, piece));
      const std::uint32_t q[4] = {q4.x, q4.y, q4.z, q4.w};
      const std::uint32_t k[4] = {k4.x, k4.y, k4.z, k4.w};
      std::uint32_t q_since[4];
      std::uint32_t k_since[4];
      std::uint32_t k_until[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int c = 8 * piece + 2 * r;
        const float2 sum = *reinterpret_cast<const float2*>(&shared.g[row][c]);
        const float2 end = *reinterpret_cast<const float2*>(&shared.g[kChunk - 1][c]);
        q_since[r] = scaled(q[r], sum);
        k_since[r] = scaled(k[r], sum);
        k_until[r] = scaled(k[r], make_float2(end.x - sum.x, end.y - sum.y));
      }
      const std::int64_t token = chunk.first_token + row;
      const auto put = [&](const RowsOf& to, const std::uint32_t(&x)[4]) {
        *reinterpret_cast<uint4*>(to.data + token * to.token_stride + key_head * to.head_stride +
                                  8 * piece) = make_uint4(x[0], x[1], x[2], x[3]);
      };
      put(d.q, q_since);
      put(d.k, k_since);
      put(d.k_until, k_until);
    }
  }

  // ---- all

  /// A into shared memory, P to memory; products become the decayed ones.
  __device__ void apply_gates(const Products& x, int head) {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
    Half* scores = d.scores + chunk_head(head) * kChunk * kChunk;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 > warp) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 16 * warp + g + 8 * h;
        const int column = 8 * n + 2 * j;
        float a[2];
        float s[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float decay =
              ByChannel
                  ? 1.0f
                  : exp_approx(fminf(shared.log_decay[row] - shared.log_decay[column + e], 0.0f));
          a[e] = column + e < row ? shared.beta[row] * x.kk[n][2 * h + e] * decay : 0.0f;
          s[e] = column + e <= row ? x.qk[n][2 * h + e] * decay : 0.0f;
        }
        *reinterpret_cast<float2*>(&shared.lower.a[row][column]) = make_float2(a[0], a[1]);
        *reinterpret_cast<std::uint32_t*>(scores + row * kChunk + column) = pack(s[0], s[1]);
      }
    }
  }

  __device__ void solve(int head) {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
    invert_diagonal(shared.lower, warp);
    __syncthreads();
    Block m[kBlocks];
    invert_column(shared.lower, warp, m);
    Half* to = d.solve + chunk_head(head) * kChunk * kChunk;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (i < warp) continue;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int column = 16 * warp + 8 * n + 2 * j;
          *reinterpret_cast<std::uint32_t*>(to + (16 * i + g + 8 * h) * kChunk + column) =
              pack(m[i].c[n][2 * h] * shared.beta[column],
                   m[i].c[n][2 * h + 1] * shared.beta[column + 1]);
        }
      }
    }
  }

  __device__ void run() {
    const int thread = static_cast<int>(threadIdx.x);
    const auto fetch = [&](Half* tile, const RowsOf& rows) {
      fetch_rows<KeyColumns, kThreads>(
          tile, rows.data + chunk.first_token * rows.token_stride + key_head * rows.head_stride,
          rows.token_stride, chunk.count, thread);
    };
    fetch(shared.q, d.q);
    fetch(shared.k, d.k);
    ptx::cp_async_commit();
    if constexpr (ByChannel) sum_channel_gates();
    ptx::cp_async_wait<0>();
    __syncthreads();

    Products x{};
    if constexpr (ByChannel) {
      const bool strong = decays_strongly();
      multiply_by_channel(x, strong);
      if (strong) multiply_diagonal(x);
      write_decayed_rows();
    } else {
      multiply_plain(x);
    }
    const int group = p.num_v_heads / d.key_heads;
    for (int head = key_head * group; head < (key_head + 1) * group; ++head) {
      const float* gates = d.gates + chunk_head(head) * kNumGates * kChunk;
      if (thread < kChunk) {
        shared.log_decay[thread] = gates[kLogDecay * kChunk + thread];
        shared.beta[thread] = gates[kBeta * kChunk + thread];
      }
      __syncthreads();
      apply_gates(x, head);
      __syncwarp();  // a diagonal block is its own warp's
      solve(head);
      __syncthreads();
    }
  }
};

/// Grid: chunks, key heads.
template <int KeyColumns, bool ByChannel>
__global__ void __launch_bounds__(Scores<KeyColumns, ByChannel>::kThreads)
    scores_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = Scores<KeyColumns, ByChannel>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<128>())).run();
}

}  // namespace attune::kernels::linear::sm90
