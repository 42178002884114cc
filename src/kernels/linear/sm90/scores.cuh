// What a chunk of the delta rule needs before it has a state (layer kernels): with
// s_ij(x) = x_i . k_j e^(G_i - G_j),
//   P_ij = s_ij(q), j <= i     A_ij = beta_i s_ij(k), j < i     T = (I + A)^-1 diag(beta)
// A warpgroup has one chunk and one key head; a warp 16 rows. Decays by channel (kda) are applied
// to the operands (channel_decays.cuh) by two warpgroups, one for either product; the others to the
// products of a warpgroup, which then serve all value heads of the key head; of a single one, Q K^T
// is done with before K K^T begins.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/linear/sm90/channel_decays.cuh"
#include "kernels/linear/sm90/products.cuh"
#include "kernels/linear/sm90/unit_lower.cuh"
#include "kernels/ptx/atomic.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::linear::sm90 {

/// Grouped: a key head has several value heads, so that products outlive the first of them.
template <int KeyColumns, bool ByChannel, bool Grouped>
struct Scores {
  static constexpr int kAtOnce = ByChannel || Grouped ? 3 : 6;  ///< warpgroups an SM
  static constexpr int kThreads = ByChannel ? ChannelDecays<KeyColumns>::kThreads : kScoreThreads;

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
  struct alignas(1024) Shared {
    union {
      Operands rows;
      LowerShared lower;  ///< once the products are made
    };
    Gates gates[2];  ///< of this value head and the next
    ptx::Mbarrier rows_full;
    int next;  ///< what the warpgroup does after this
  };

  const PromptParams& d;
  const Params& p;
  Shared& shared;
  Chunk chunk;
  int key_head;
  int warp;

  std::uint32_t parity;  ///< of rows_full

  __device__ Scores(const PromptParams& params, Shared& s, const Chunk& at, int head,
                    std::uint32_t parity_now)
      : d(params),
        p(params.p),
        shared(s),
        chunk(at),
        key_head(head),
        warp(score_thread() / 32),
        parity(parity_now) {}

  /// Of those who have a chunk together.
  static __device__ __forceinline__ bool is_first() {
    return ByChannel ? threadIdx.x == 0 : score_thread() == 0;
  }
  static __device__ __forceinline__ void barrier() {
    if constexpr (ByChannel) {
      __syncthreads();
    } else {
      score_barrier();
    }
  }

  static __device__ __forceinline__ void make_barrier(Shared& s) {
    if (is_first()) ptx::mbarrier_init(s.rows_full, 1);
    ptx::mbarrier_init_fence();
    barrier();
  }

  /// q and k; nobody uses the room for anything else any more.
  __device__ __forceinline__ void ask_for_rows() const {
    if (!is_first()) return;
    constexpr std::uint32_t kBytes = sizeof(shared.rows.q);
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive_expect(shared.rows_full, 2 * kBytes);
    ptx::bulk_load(shared.rows.q, d.q.tiles(chunk.index, key_head), kBytes, shared.rows_full);
    ptx::bulk_load(shared.rows.k, d.k.tiles(chunk.index, key_head), kBytes, shared.rows_full);
  }
  __device__ __forceinline__ void wait_for_rows() const {
    ptx::mbarrier_wait(shared.rows_full, parity);
  }

  __device__ __forceinline__ std::int64_t chunk_head(int head) const {
    return static_cast<std::int64_t>(chunk.index) * p.num_v_heads + head;
  }

  // ---- decays by token

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
    Half* const to = d.pairs[chunk_head(head)].scores + 16 * warp * kBlock;
    const int pair[2] = {triangle_pair(0), triangle_pair(1)};
    each_decay(shared.gates[head % 2], [&](int n, int h, float2 decay, bool diagonal) {
      const int below = 16 * warp + row + 8 * h - 8 * n - column;  // of the first of the pair
      const float x = qk[4 * n + 2 * h] * decay.x;
      const float y = qk[4 * n + 2 * h + 1] * decay.y;
      *reinterpret_cast<std::uint32_t*>(to + pair[n % 2] + triangle_panel(n / 2) + 8 * h * kBlock) =
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
    float* to = d.pairs[chunk_head(head)].decay + t;
    *reinterpret_cast<float2*>(to + kSince * kChunk) =
        make_float2(exp_approx(first), exp_approx(second));
    *reinterpret_cast<float2*>(to + kUntil * kChunk) =
        make_float2(exp_approx(end - first), exp_approx(end - second));
  }

  // ---- all

  __device__ void solve(int head) {
    const int j = lane_id() % 4;
    Block m[kBlocks];
    invert_column(shared.lower, warp, m);
    Half* const to = d.pairs[chunk_head(head)].solve + triangle_panel(warp);
    const int pair[2] = {triangle_pair(0), triangle_pair(1)};
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
          *reinterpret_cast<std::uint32_t*>(to + pair[n] + (16 * i + 8 * h) * kBlock) =
              pack(m[i].c[n][2 * h] * factor[n].x, m[i].c[n][2 * h + 1] * factor[n].y);
      }
    }
  }

  /// T from the block's A, of which a warp has put its own rows.
  __device__ __forceinline__ void invert(int head) {
    __syncwarp();  // a diagonal block is its own warp's
    invert_diagonal(shared.lower, warp);
    score_barrier();
    solve(head);
  }

  __device__ void run() {
    static_assert(!ByChannel);
    ask_for_rows();
    const int first = Grouped ? key_head * (p.num_v_heads / d.key_heads) : key_head;
    RawGates raw;
    if (warp == 0) ask_for_gates(raw, first);
    wait_for_rows();
    RowProducts qk = {};
    RowProducts kk = {};
    ask_for_product(qk, shared.rows.q);
    if constexpr (Grouped) ask_for_product(kk, shared.rows.k);
    if (warp == 0) share_gates(raw, first);
    wait_for_product(qk);
    score_barrier();
    if constexpr (!Grouped) {
      write_scores(qk, first);
      ask_for_product(kk, shared.rows.k);
      wait_for_product(kk);
      score_barrier();  // k has been read
      share_lower(kk, first);
      invert(first);
      publish(first);
      return;
    }
    wait_for_product(kk);
    const int end = first + p.num_v_heads / d.key_heads;
    for (int head = first; head < end; ++head) {
      write_scores(qk, head);
      score_barrier();  // k has been read; the last head's T is out
      share_lower(kk, head);
      invert(head);
      if (warp == kBlocks - 1 && head + 1 < end) {  // it has the least to invert
        ask_for_gates(raw, head + 1);
        share_gates(raw, head + 1);
      }
      publish(head);
    }
  }

  /// Everything of a value head is out, and its room free; a scan that runs beside this learns it.
  __device__ __forceinline__ void publish(int head) const {
    if (d.ready != nullptr) ptx::fence_proxy_async_global();
    score_barrier();
    if (d.ready != nullptr && score_thread() == 0)
      (void)ptx::arrive_at(d.ready + std::int64_t{head} * d.num_chunks + chunk.index);
  }
};

template <int KeyColumns, bool Grouped>
__device__ __forceinline__ auto* scores_shared() {
  using Shared = typename Scores<KeyColumns, false, Grouped>::Shared;
  return reinterpret_cast<Shared*>(ptx::dynamic_shared<1024>());
}

/// Grid: chunks, key heads.
template <int KeyColumns, bool Grouped>
__global__ void __launch_bounds__(Scores<KeyColumns, false, Grouped>::kThreads,
                                  Scores<KeyColumns, false, Grouped>::kAtOnce)
    scores_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = Scores<KeyColumns, false, Grouped>;
  auto& shared = *scores_shared<KeyColumns, Grouped>();
  const Chunk chunk = params.chunks[blockIdx.x];
  Kernel::make_barrier(shared);
  Kernel(params, shared, chunk, static_cast<int>(blockIdx.y), 0).run();
}

/// The same by blocks of an SM each, in the order in which a scan beside them wants it. The last of
/// them leave when half of their warpgroups have made a chunk each, which is when the first chunks
/// are ready: on their SMs scan begins. It never holds what scores waits for, since its blocks can
/// only start when all of these have.
template <int KeyColumns, bool Grouped>
__global__ void __launch_bounds__(
    Scores<KeyColumns, false, Grouped>::kThreads* Scores<KeyColumns, false, Grouped>::kAtOnce, 1)
    scores_beside_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = Scores<KeyColumns, false, Grouped>;
  ptx::dependency_release();
  auto& shared = scores_shared<KeyColumns, Grouped>()[threadIdx.x / Kernel::kThreads];
  const bool leaves = static_cast<int>(blockIdx.x) >= params.beside - params.leaving;
  if (leaves && threadIdx.x / Kernel::kThreads >= Kernel::kAtOnce / 2) return;
  const int end = params.num_chunks * params.key_heads;
  if (score_thread() == 0) shared.next = atomicAdd(params.next, 1);
  Kernel::make_barrier(shared);
  std::uint32_t parity = 0;
#pragma unroll 1
  for (int item = shared.next; item < end; item = shared.next) {
    score_barrier();
    if (score_thread() == 32) shared.next = leaves ? end : atomicAdd(params.next, 1);
    Kernel(params, shared, params.chunks[item / params.key_heads], item % params.key_heads, parity)
        .run();
    parity ^= 1;
  }
}

}  // namespace attune::kernels::linear::sm90
