// Lists of few blocks: the largest score is taken as often as the list is long, by a warp, each of
// whose lanes keeps one. Several warps take those of runs of their own first, and one of them the
// largest of what they have.
#pragma once

#include "kernels/block_lists/sm80/list.cuh"
#include "kernels/ptx/reduce.cuh"

namespace attune::kernels::block_lists::sm80 {

/// A score's rank and its block; rank 0: none.
struct Pick {
  unsigned rank = 0;
  int block = -1;
};

inline constexpr int kRunOfLane = 8;
inline constexpr int kRun = 32 * kRunOfLane;  ///< blocks that a warp chooses from at a time
inline constexpr int kPicksOfLane = 16;
inline constexpr int kMostPicks = 32 * kPicksOfLane;  ///< of all runs
inline constexpr int kMostFew = 32;                   ///< a lane each

/// Whether so many of so many blocks are few.
[[nodiscard]] constexpr bool are_few(int wanted, std::int64_t blocks) {
  return wanted <= kMostFew && (blocks + kRun - 1) / kRun * wanted <= kMostPicks;
}

/// Lane n's answer is the n-th largest, of equals the later block first; of fewer than `wanted` the
/// last lanes have none.
template <int OfLane>
__device__ __forceinline__ Pick take_largest(Pick (&from)[OfLane], int wanted) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Pick mine;
  for (int n = 0; n < wanted; ++n) {
    Pick top;
#pragma unroll
    for (int i = 0; i < OfLane; ++i)
      if (from[i].rank > top.rank || (from[i].rank == top.rank && from[i].block > top.block))
        top = from[i];
    const unsigned rank = ptx::warp_max(top.rank);
    const unsigned own = top.rank == rank ? static_cast<unsigned>(top.block + 1) : 0u;
    const int block = static_cast<int>(ptx::warp_max(own)) - 1;
    if (lane == n) mine = {rank, block};
#pragma unroll
    for (int i = 0; i < OfLane; ++i)
      if (from[i].block == block) from[i] = {};
  }
  return mine;
}

/// Lane n's answer of the `count` picks that at(0) … give; OfLane of them a lane.
template <int OfLane, class At>
__device__ __forceinline__ Pick largest_of(int count, int wanted, At at) {
  Pick from[OfLane];
#pragma unroll
  for (int i = 0; i < OfLane; ++i) {
    const int n = 32 * i + static_cast<int>(threadIdx.x) % 32;
    if (n < count) from[i] = at(n);
  }
  return take_largest(from, wanted);
}

/// `picks`: [runs, wanted] in shared memory. Scores and blocks count from the first that is open.
template <int WarpsOfList>
__device__ __forceinline__ void pick_of_runs(const float* scores, int blocks, int wanted,
                                             Pick* picks) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % WarpsOfList;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int run = warp; run * kRun < blocks; run += WarpsOfList) {
    const int left = blocks - run * kRun;
    const auto at = [&](int n) { return Pick{rank_of(scores[run * kRun + n]), run * kRun + n}; };
    const Pick mine =
        left <= 64 ? largest_of<2>(left, wanted, at) : largest_of<kRunOfLane>(left, wanted, at);
    if (lane < wanted) picks[run * wanted + lane] = mine;
  }
}

/// One warp: the `wanted` largest of all picks to `out`, ascending, `first` added.
__device__ __forceinline__ void keep_picks(const Pick* picks, int num_picks, int wanted, int first,
                                           std::int32_t* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto at = [&](int n) { return picks[n]; };
  Pick mine;
  if (num_picks == wanted) {
    if (lane < wanted) mine = picks[lane];
  } else {
    mine = num_picks <= 64 ? largest_of<2>(num_picks, wanted, at)
                           : largest_of<kPicksOfLane>(num_picks, wanted, at);
  }
  int place = 0;
  for (int n = 0; n < wanted; ++n)
    place += __shfl_sync(kAllLanes, mine.block, n) < mine.block ? 1 : 0;
  if (lane < wanted) out[place] = first + mine.block;
}

}  // namespace attune::kernels::block_lists::sm80
