// What a chunk of the delta rule needs before it has a state (layer kernels): with
// s_ij(x) = x_i . k_j e^(G_i - G_j),
//   P_ij = s_ij(q), j <= i     A_ij = beta_i s_ij(k), j < i     T = (I + A)^-1 diag(beta)
// A block has one chunk and one key head; a warp 16 rows. Decays by channel (kda) are applied to
// the operands (channel_decays.cuh), the others to the products, which then serve all value heads
// of the key head.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/linear/sm90/channel_decays.cuh"
#include "kernels/linear/sm90/products.cuh"
#include "kernels/linear/sm90/unit_lower.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::linear::sm90 {

/// Grouped: a key head has several value heads, so that products outlive the first of them.
template <int KeyColumns, bool ByChannel, bool Grouped>
struct Scores {
  static constexpr int kBlocksAnSm = ByChannel || Grouped ? 3 : 5;
  static constexpr int kThreads = kScoreThreads;

  struct Rows {
    Half q[kChunk * KeyColumns];
    Half k[kChunk * KeyColumns];
  };
  struct Gates {
    float log_decay[kChunk];
    float beta[kChunk];
  };
  using Operands = std::conditional_t<ByChannel, typename ChannelDecays<KeyColumns>::Shared, Rows>;
  struct Shared {
    union {
      Operands rows;
      LowerShared lower;  ///< once the products are made
    };
    Gates gates[2];  ///< of this value head and the next
  };

  const PromptParams& d;
  const Params& p;
  Shared& shared;
  int chunk_index;
  Chunk chunk;
  int key_head;
  int warp;

  __device__ Scores(const PromptParams& params, Shared& s)
      : d(params),
        p(params.p),
        shared(s),
        chunk_index(static_cast<int>(blockIdx.x)),
        chunk(params.chunks[chunk_index]),
        key_head(static_cast<int>(blockIdx.y)),
        warp(static_cast<int>(threadIdx.x / 32)) {}

  __device__ __forceinline__ std::int64_t chunk_head(int head) const {
    return static_cast<std::int64_t>(chunk_index) * p.num_v_heads + head;
  }

  __device__ void multiply_plain(Products& x) const {
#pragma unroll
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      std::uint32_t q[4];
      std::uint32_t k[4];
      load_a<KeyColumns>(q, shared.rows.q, 16 * warp, 16 * ks);
      load_a<KeyColumns>(k, shared.rows.k, 16 * warp, 16 * ks);
#pragma unroll
      for (int nb = 0; nb < kBlocks; ++nb) {
        if (nb > warp) continue;
        std::uint32_t b[4];
        load_b<KeyColumns>(b, shared.rows.k, 16 * nb, 16 * ks);
        add_products(x, nb, q, k, b);
      }
    }
  }

  /// One warp: beta and G for this block, the decays since and until for the scan. A lane has two
  /// tokens.
  __device__ __forceinline__ void share_gates(int head) {
    const int t = 2 * lane_id();
    TokenGate gate[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const RawGate<true> raw =
          raw_gate<true>(p, head, chunk.first_token + min(t + i, chunk.count - 1));
      gate[i] = t + i < chunk.count ? token_gate(p, raw) : TokenGate{0.0f, 0.0f};
    }
    Gates& to = shared.gates[head % 2];
    *reinterpret_cast<float2*>(&to.beta[t]) = make_float2(gate[0].beta, gate[1].beta);
    if constexpr (!ByChannel) share_decays(gate, head);
  }

  __device__ __forceinline__ void share_decays(const TokenGate (&gate)[2], int head) {
    const int t = 2 * lane_id();
    float second = gate[0].log_decay + gate[1].log_decay;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float earlier = __shfl_up_sync(0xffffffffu, second, static_cast<unsigned>(step));
      if (lane_id() >= step) second += earlier;
    }
    const float first = second - gate[1].log_decay;
    const float end = __shfl_sync(0xffffffffu, second, 31);
    *reinterpret_cast<float2*>(&shared.gates[head % 2].log_decay[t]) = make_float2(first, second);
    float* to = d.gates + chunk_head(head) * kNumGates * kChunk + t;
    *reinterpret_cast<float2*>(to + kSince * kChunk) = make_float2(expf(first), expf(second));
    *reinterpret_cast<float2*>(to + kUntil * kChunk) =
        make_float2(expf(end - first), expf(end - second));
  }

  /// A into shared memory, P to memory; products become the decayed ones.
  __device__ __forceinline__ void apply_gates(const Products& x, int head) {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
    const Gates& gates = shared.gates[head % 2];
    const float end[2] = {ByChannel ? 0.0f : gates.log_decay[16 * warp + g],
                          ByChannel ? 0.0f : gates.log_decay[16 * warp + g + 8]};
    const float beta[2] = {gates.beta[16 * warp + g], gates.beta[16 * warp + g + 8]};
    Half* scores = d.scores + chunk_head(head) * kChunk * kChunk + (16 * warp + g) * kChunk + 2 * j;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 > warp) continue;
      const int column = 8 * n + 2 * j;
      const float2 begin = ByChannel ? make_float2(0.0f, 0.0f)
                                     : *reinterpret_cast<const float2*>(&gates.log_decay[column]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 16 * warp + g + 8 * h;
        const float decay[2] = {ByChannel ? 1.0f : exp_approx(end[h] - begin.x),
                                ByChannel ? 1.0f : exp_approx(end[h] - begin.y)};
        float a[2];
        float s[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          // Above the diagonal the decay may be infinite, and is not used.
          a[e] = column + e < row ? beta[h] * x.kk[n][2 * h + e] * decay[e] : 0.0f;
          s[e] = column + e <= row ? x.qk[n][2 * h + e] * decay[e] : 0.0f;
        }
        put_lower(shared.lower, row, column, a[0], a[1]);
        *reinterpret_cast<std::uint32_t*>(scores + 8 * h * kChunk + 8 * n) = pack(s[0], s[1]);
      }
    }
  }

  __device__ void solve(int head) {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
    Block m[kBlocks];
    invert_column(shared.lower, warp, m);
    Half* to = d.solve + chunk_head(head) * kChunk * kChunk + g * kChunk + 16 * warp + 2 * j;
    const float* beta = &shared.gates[head % 2].beta[16 * warp + 2 * j];
    const float2 factor[2] = {*reinterpret_cast<const float2*>(beta),
                              *reinterpret_cast<const float2*>(beta + 8)};
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (i < warp) continue;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<std::uint32_t*>(to + (16 * i + 8 * h) * kChunk + 8 * n) =
              pack(m[i].c[n][2 * h] * factor[n].x, m[i].c[n][2 * h + 1] * factor[n].y);
      }
    }
  }

  static __device__ __forceinline__ void wait_for_rows() {
    ptx::cp_async_wait<0>();
    __syncthreads();
  }

  __device__ void run() {
    const int thread = static_cast<int>(threadIdx.x);
    const auto fetch = [&](Half* tile, const RowsOf& rows) {
      fetch_rows<KeyColumns, kThreads>(
          tile, rows.data + chunk.first_token * rows.token_stride + key_head * rows.head_stride,
          rows.token_stride, chunk.count, thread);
    };
    fetch(shared.rows.q, d.q);
    fetch(shared.rows.k, d.k);
    ptx::cp_async_commit();
    const int first = Grouped ? key_head * (p.num_v_heads / d.key_heads) : key_head;
    const int end = Grouped ? first + p.num_v_heads / d.key_heads : first + 1;
    if (warp == kBlocks - 1) share_gates(first);
    Products x{};
    if constexpr (ByChannel) {
      using Decays = ChannelDecays<KeyColumns>;
      Decays decays{d, p, shared.rows, chunk, key_head, chunk_head(key_head)};
      typename Decays::Sums sums;
      decays.sum_gates(sums);
      wait_for_rows();
      decays.multiply(x, sums);
    } else {
      wait_for_rows();
      multiply_plain(x);
    }
    for (int head = first; head < end; ++head) {
      __syncthreads();  // the products have read q and k; the last head's T is out
      apply_gates(x, head);
      __syncwarp();  // a diagonal block is its own warp's
      invert_diagonal(shared.lower, warp);
      __syncthreads();
      // The last warp has the least to invert.
      if (warp == kBlocks - 1 && head + 1 < end) share_gates(head + 1);
      solve(head);
    }
  }
};

/// Grid: chunks, key heads.
template <int KeyColumns, bool ByChannel, bool Grouped>
__global__ void __launch_bounds__(Scores<KeyColumns, ByChannel, Grouped>::kThreads,
                                  Scores<KeyColumns, ByChannel, Grouped>::kBlocksAnSm)
    scores_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = Scores<KeyColumns, ByChannel, Grouped>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<128>())).run();
}

}  // namespace attune::kernels::linear::sm90
