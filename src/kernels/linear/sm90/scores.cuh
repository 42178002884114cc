// What a chunk of the delta rule needs before it has a state (layer kernels): with
// s_ij(x) = x_i . k_j e^(G_i - G_j),
//   P_ij = s_ij(q), j <= i     A_ij = beta_i s_ij(k), j < i     T = (I + A)^-1 diag(beta)
// A block has one chunk and one key head; a warp 16 rows. Decays by channel (kda) are applied to
// the operands (channel_decays.cuh), the others to the products of a warpgroup, which then serve
// all value heads of the key head; of a single one, Q K^T is done with before K K^T begins.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/linear/sm90/channel_decays.cuh"
#include "kernels/linear/sm90/products.cuh"
#include "kernels/linear/sm90/unit_lower.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::linear::sm90 {

/// Grouped: a key head has several value heads, so that products outlive the first of them.
template <int KeyColumns, bool ByChannel, bool Grouped>
struct Scores {
  static constexpr int kBlocksAnSm = ByChannel || Grouped ? 3 : 6;
  static constexpr int kThreads = kScoreThreads;

  static constexpr int kPanel = kChunk * 64;  ///< elements of a tile of 64 columns

  /// Tiles side by side.
  struct Rows {
    Half q[kChunk * KeyColumns];
    Half k[kChunk * KeyColumns];
  };
  struct Gates {
    float log_decay[kChunk];  ///< of base 2
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

  // ---- decays by token

  /// Products of a warp's rows with all tokens, 8 columns each.
  using RowProducts = float[kChunk / 2];

  __device__ __forceinline__ void fetch_panels(Half* to, const RowsOf& rows) const {
    const Half* from =
        rows.data + chunk.first_token * rows.token_stride + key_head * rows.head_stride;
#pragma unroll
    for (int panel = 0; panel < KeyColumns / 64; ++panel)
      fetch_rows<64, kThreads>(to + panel * kPanel, from + 64 * panel, rows.token_stride,
                               chunk.count, static_cast<int>(threadIdx.x));
  }

  /// product = rows k^T.
  __device__ __forceinline__ void ask_for_product(RowProducts& product, const Half* rows) const {
    const std::uint64_t left = ptx::wgmma_descriptor(rows);
    const std::uint64_t right = ptx::wgmma_descriptor(shared.rows.k);
    ptx::wgmma_pin(product);
    ptx::wgmma_fence();
#pragma unroll
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      const auto step = static_cast<std::uint64_t>((ks / 4 * kPanel * 2 + ks % 4 * 32) >> 4);
      ptx::wgmma_ss<__nv_bfloat16, kChunk, ptx::Major::k, ptx::Major::k>(product, left + step,
                                                                         right + step, ks > 0);
    }
    ptx::wgmma_commit();
  }
  static __device__ __forceinline__ void wait_for_product(RowProducts& product) {
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(product);
  }

  /// Calls visit(n, h, decays of two columns) for the warp's 8-column blocks up to the diagonal's
  /// and either of a lane's rows. Before the diagonal's 16 columns a decay is the product of that
  /// until the warp's rows begin and that since, neither of which can be infinite; in them it is
  /// taken directly, and may be infinite above the diagonal.
  template <class Visit>
  __device__ __forceinline__ void each_decay(const Gates& gates, Visit visit) const {
    const int row = 16 * warp + lane_id() / 4;
    const float end[2] = {gates.log_decay[row], gates.log_decay[row + 8]};
    const float begin = gates.log_decay[max(16 * warp - 1, 0)];
    const float since[2] = {ptx::exp2_approx(end[0] - begin), ptx::exp2_approx(end[1] - begin)};
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 > warp) continue;
      const float2 sum =
          *reinterpret_cast<const float2*>(&gates.log_decay[8 * n + 2 * (lane_id() % 4)]);
      if (n / 2 < warp) {
        const float2 until =
            make_float2(ptx::exp2_approx(begin - sum.x), ptx::exp2_approx(begin - sum.y));
#pragma unroll
        for (int h = 0; h < 2; ++h)
          visit(n, h, make_float2(since[h] * until.x, since[h] * until.y), false);
      } else {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          visit(n, h,
                make_float2(ptx::exp2_approx(end[h] - sum.x), ptx::exp2_approx(end[h] - sum.y)),
                true);
      }
    }
  }

  /// P to memory.
  __device__ __forceinline__ void write_scores(const RowProducts& qk, int head) const {
    const int row = lane_id() / 4;
    const int column = 2 * (lane_id() % 4);
    Half* to = d.scores + chunk_head(head) * kChunk * kChunk + (16 * warp + row) * kChunk + column;
    each_decay(shared.gates[head % 2], [&](int n, int h, float2 decay, bool diagonal) {
      const int below = 16 * warp + row + 8 * h - 8 * n - column;  // of the first of the pair
      const float x = qk[4 * n + 2 * h] * decay.x;
      const float y = qk[4 * n + 2 * h + 1] * decay.y;
      *reinterpret_cast<std::uint32_t*>(to + 8 * h * kChunk + 8 * n) =
          pack(diagonal && below < 0 ? 0.0f : x, diagonal && below < 1 ? 0.0f : y);
    });
  }

  /// A into shared memory.
  __device__ __forceinline__ void share_lower(const RowProducts& kk, int head) {
    const int row = 16 * warp + lane_id() / 4;
    const int column = 2 * (lane_id() % 4);
    const Gates& gates = shared.gates[head % 2];
    const float beta[2] = {gates.beta[row], gates.beta[row + 8]};
    each_decay(gates, [&](int n, int h, float2 decay, bool diagonal) {
      const int below = row + 8 * h - 8 * n - column;
      const float x = beta[h] * kk[4 * n + 2 * h] * decay.x;
      const float y = beta[h] * kk[4 * n + 2 * h + 1] * decay.y;
      if (diagonal) {
        put_diagonal(shared.lower, row + 8 * h, 8 * n + column, below > 0 ? x : 0.0f,
                     below > 1 ? y : 0.0f);
      } else {
        put_lower(shared.lower, row + 8 * h, 8 * n + column, x, y);
      }
    });
  }

  /// A lane's two tokens.
  using RawGates = RawGate<true>[2];
  __device__ __forceinline__ void ask_for_gates(RawGates& raw, int head) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      raw[i] = raw_gate<true>(p, head, chunk.first_token + min(2 * lane_id() + i, chunk.count - 1));
  }

  /// One warp: beta and G for this block, the decays since and until for the scan.
  __device__ __forceinline__ void share_gates(const RawGates& raw, int head) {
    const int t = 2 * lane_id();
    TokenGate gate[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      gate[i] = t + i < chunk.count ? token_gate(p, raw[i]) : TokenGate{0.0f, 0.0f};
    Gates& to = shared.gates[head % 2];
    *reinterpret_cast<float2*>(&to.beta[t]) = make_float2(gate[0].beta, gate[1].beta);
    if constexpr (!ByChannel) share_decays(gate, head);
  }

  __device__ __forceinline__ void share_decays(const TokenGate (&gate)[2], int head) {
    const int t = 2 * lane_id();
    const auto [first, second, end] = sum_decays(gate[0].log_decay, gate[1].log_decay);
    *reinterpret_cast<float2*>(&shared.gates[head % 2].log_decay[t]) =
        make_float2(kLog2E * first, kLog2E * second);
    float* to = d.gates + chunk_head(head) * kNumGates * kChunk + t;
    *reinterpret_cast<float2*>(to + kSince * kChunk) =
        make_float2(exp_approx(first), exp_approx(second));
    *reinterpret_cast<float2*>(to + kUntil * kChunk) =
        make_float2(exp_approx(end - first), exp_approx(end - second));
  }

  // ---- decays by channel, which are in the products

  /// A into shared memory, P to memory.
  __device__ __forceinline__ void take_products(const Products& x, int head) {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
    const Gates& gates = shared.gates[head % 2];
    const float beta[2] = {gates.beta[16 * warp + g], gates.beta[16 * warp + g + 8]};
    Half* scores = d.scores + chunk_head(head) * kChunk * kChunk + (16 * warp + g) * kChunk + 2 * j;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 > warp) continue;
      const int column = 8 * n + 2 * j;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 16 * warp + g + 8 * h;
        float a[2];
        float s[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          a[e] = column + e < row ? beta[h] * x.kk[n][2 * h + e] : 0.0f;
          s[e] = column + e <= row ? x.qk[n][2 * h + e] : 0.0f;
        }
        if (n / 2 < warp) {
          put_lower(shared.lower, row, column, a[0], a[1]);
        } else {
          put_diagonal(shared.lower, row, column, a[0], a[1]);
        }
        *reinterpret_cast<std::uint32_t*>(scores + 8 * h * kChunk + 8 * n) = pack(s[0], s[1]);
      }
    }
  }

  // ---- all

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

  /// The chunk's share of its request's states before it, for a walk that might begin when another
  /// has ended.
  __device__ __forceinline__ void copy_states(int first, int end) const {
    constexpr int kAtOnce = 8;
    const int cells = p.dv * p.dk;
    const auto share = static_cast<int>(chunk.before / kChunk);
    const int begin = cells / kCopyShares * share;
    const int stop = share + 1 == kCopyShares ? cells : begin + cells / kCopyShares;
    for (int head = first; head < end; ++head) {
      const float* from = p.state + chunk.slot * p.state_slot + std::int64_t{head} * cells;
      float* to = d.copies + (std::int64_t{chunk.copy} * p.num_v_heads + head) * cells;
      for (int at = begin + static_cast<int>(threadIdx.x); at < stop; at += kAtOnce * kThreads) {
        float x[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) x[i] = from[min(at + i * kThreads, stop - 1)];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          if (at + i * kThreads < stop) to[at + i * kThreads] = x[i];
      }
    }
  }

  static __device__ __forceinline__ void wait_for_rows() {
    ptx::cp_async_wait<0>();
    __syncthreads();
  }

  /// T from the block's A, of which a warp has put its own rows.
  __device__ __forceinline__ void invert(int head) {
    __syncwarp();  // a diagonal block is its own warp's
    invert_diagonal(shared.lower, warp);
    __syncthreads();
    solve(head);
  }

  __device__ void run_by_channel() {
    const auto fetch = [&](Half* tile, const RowsOf& rows) {
      fetch_rows<KeyColumns, kThreads>(
          tile, rows.data + chunk.first_token * rows.token_stride + key_head * rows.head_stride,
          rows.token_stride, chunk.count, static_cast<int>(threadIdx.x));
    };
    fetch(shared.rows.q, d.q);
    fetch(shared.rows.k, d.k);
    ptx::cp_async_commit();
    RawGates raw;
    if (warp == 0) ask_for_gates(raw, key_head);
    using Decays = ChannelDecays<KeyColumns>;
    Decays decays{d, p, shared.rows, chunk, key_head, chunk_head(key_head)};
    typename Decays::Sums sums;
    decays.sum_gates(sums);
    wait_for_rows();
    Products x{};
    decays.multiply(x, sums);
    if (warp == 0) share_gates(raw, key_head);  // it has the fewest products
    __syncthreads();                            // q and k have been read
    take_products(x, key_head);
    invert(key_head);
  }

  __device__ void run_by_token() {
    fetch_panels(shared.rows.q, d.q);
    fetch_panels(shared.rows.k, d.k);
    ptx::cp_async_commit();
    const int first = Grouped ? key_head * (p.num_v_heads / d.key_heads) : key_head;
    RawGates raw;
    if (warp == 0) ask_for_gates(raw, first);
    ptx::cp_async_wait<0>();
    ptx::fence_proxy_async();
    __syncthreads();
    RowProducts qk;
    RowProducts kk;
    ask_for_product(qk, shared.rows.q);
    if constexpr (Grouped) ask_for_product(kk, shared.rows.k);
    if (warp == 0) share_gates(raw, first);
    wait_for_product(qk);
    __syncthreads();
    if constexpr (!Grouped) {
      write_scores(qk, first);
      ask_for_product(kk, shared.rows.k);
      wait_for_product(kk);
      __syncthreads();  // k has been read
      share_lower(kk, first);
      invert(first);
      return;
    }
    wait_for_product(kk);
    const int end = first + p.num_v_heads / d.key_heads;
    for (int head = first; head < end; ++head) {
      write_scores(qk, head);
      __syncthreads();  // k has been read; the last head's T is out
      share_lower(kk, head);
      invert(head);
      if (warp == kBlocks - 1 && head + 1 < end) {  // it has the least to invert
        ask_for_gates(raw, head + 1);
        share_gates(raw, head + 1);
      }
      __syncthreads();
    }
  }

  __device__ void run() {
    if constexpr (ByChannel) {
      run_by_channel();
    } else {
      run_by_token();
    }
    const int heads = p.num_v_heads / d.key_heads;
    if (chunk.copy >= 0) copy_states(key_head * heads, (key_head + 1) * heads);
  }
};

/// Grid: chunks, key heads.
template <int KeyColumns, bool ByChannel, bool Grouped>
__global__ void __launch_bounds__(Scores<KeyColumns, ByChannel, Grouped>::kThreads,
                                  Scores<KeyColumns, ByChannel, Grouped>::kBlocksAnSm)
    scores_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = Scores<KeyColumns, ByChannel, Grouped>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(
                     ptx::dynamic_shared < ByChannel ? 128 : 1024 > ()))
      .run();
}

}  // namespace attune::kernels::linear::sm90
