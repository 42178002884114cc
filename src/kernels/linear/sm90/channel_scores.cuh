// The scores of decays by channel (layer kernels): two warpgroups a chunk and head, one for either
// product; the decays are in the operands (channel_decays.cuh).
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/channel_decays.cuh"
#include "kernels/linear/sm90/scores.cuh"

namespace attune::kernels::linear::sm90 {

template <int KeyColumns>
struct ChannelScores : Scores<KeyColumns, true, false> {
  using Base = Scores<KeyColumns, true, false>;
  using Base::ask_for_gates, Base::ask_for_rows, Base::chunk, Base::chunk_head, Base::d;
  using Base::Base;
  using Base::invert, Base::kAtOnce, Base::key_head, Base::kThreads, Base::p, Base::shared;
  using Base::share_gates, Base::wait_for_rows, Base::warp;
  using typename Base::Gates;
  using typename Base::RawGates;

  /// Calls visit(n, h, pair) for the warp's 8-column blocks up to the diagonal's and either of a
  /// lane's rows; columns from `end` rows above the diagonal on are zeros.
  template <class Visit>
  __device__ __forceinline__ void each_pair(const RowProducts& x, int end, Visit visit) const {
    const int row = 16 * warp + lane_id() / 4;
    const int column = 2 * (lane_id() % 4);
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 > warp) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int above = 8 * n + column - row - 8 * h;
        visit(n, h,
              make_float2(above < end ? x[4 * n + 2 * h] : 0.0f,
                          above + 1 < end ? x[4 * n + 2 * h + 1] : 0.0f));
      }
    }
  }

  /// A into shared memory.
  __device__ __forceinline__ void take_lower(const RowProducts& kk, int head) {
    const int row = 16 * warp + lane_id() / 4;
    const int column = 2 * (lane_id() % 4);
    const Gates& gates = shared.gates[head % 2];
    const float beta[2] = {gates.beta[row], gates.beta[row + 8]};
    each_pair(kk, 0, [&](int n, int h, float2 pair) {
      const float x = beta[h] * pair.x;
      const float y = beta[h] * pair.y;
      if (n / 2 < warp) {
        put_lower(shared.lower, row + 8 * h, 8 * n + column, x, y);
      } else {
        put_diagonal(shared.lower, row + 8 * h, 8 * n + column, x, y);
      }
    });
  }

  /// P to memory.
  __device__ __forceinline__ void take_scores(const RowProducts& qk, int head) const {
    Half* const to = d.pairs[chunk_head(head)].scores + 16 * warp * kBlock;
    const int place[2] = {triangle_pair(0), triangle_pair(1)};
    each_pair(qk, 1, [&](int n, int h, float2 pair) {
      *reinterpret_cast<std::uint32_t*>(to + place[n % 2] + triangle_panel(n / 2) +
                                        8 * h * kBlock) = pack(pair.x, pair.y);
    });
  }

  /// What a block wants that comes when those of now have gone is brought to the second-level
  /// cache.
  __device__ __forceinline__ void ask_ahead() const {
    const unsigned under_way = static_cast<unsigned>(d.num_sms * kAtOnce);
    const unsigned id = blockIdx.x + gridDim.x * blockIdx.y + under_way;
    const unsigned head = id / gridDim.x;
    if (head >= gridDim.y) return;
    const Chunk other = d.chunks[id % gridDim.x];
    const int token = score_thread();
    if (d.whole_gates && token < other.count)
      ptx::bulk_prefetch(static_cast<const Half*>(p.gate.data) +
                             (other.first_token + token) * p.gate.row + std::int64_t{head} * p.dk,
                         p.dk * std::int64_t{sizeof(Half)});
    if (token == kChunk) ptx::bulk_prefetch(d.q.tiles(other.index, head), sizeof(shared.rows.q));
    if (token == kChunk + 32)
      ptx::bulk_prefetch(d.k.tiles(other.index, head), sizeof(shared.rows.k));
  }

  __device__ void run() {
    constexpr int kRowsRead = 3;  ///< a barrier that no warpgroup has for itself
    ask_for_rows();
    const bool for_scores = threadIdx.x >= kScoreThreads;
    RawGates raw;
    if (for_scores && warp == 0) ask_for_gates(raw, key_head);
    using Decays = ChannelDecays<KeyColumns>;
    Decays decays{d, p, shared.rows, chunk, key_head, chunk_head(key_head)};
    typename Decays::Sums sums;
    decays.sum_gates(sums);
    if (for_scores && warp == 0) share_gates(raw, key_head);
    wait_for_rows();
    RowProducts x;
    decays.multiply(x, sums);
    // Once q and k have been read their room is A's.
    if (for_scores) {
      ptx::named_barrier_arrive(kRowsRead, kThreads);
      take_scores(x, key_head);
      ask_ahead();
      return;
    }
    ptx::named_barrier_sync(kRowsRead, kThreads);
    take_lower(x, key_head);
    invert(key_head);
  }
};

/// Grid: chunks, heads.
template <int KeyColumns>
__global__ void __launch_bounds__(ChannelScores<KeyColumns>::kThreads,
                                  ChannelScores<KeyColumns>::kAtOnce)
    channel_scores_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = ChannelScores<KeyColumns>;
  auto& shared = *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<1024>());
  const Chunk chunk = params.chunks[blockIdx.x];
  Kernel::make_barrier(shared);
  Kernel(params, shared, chunk, static_cast<int>(blockIdx.y), 0).run();
}

}  // namespace attune::kernels::linear::sm90
