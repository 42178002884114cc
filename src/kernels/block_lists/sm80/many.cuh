// Lists of any length: each warp has a run of the scores in registers; two bits of the numbers' order
// a round find the threshold, by counting; counts in front of each run say where what it keeps lies.
#pragma once

#include "kernels/block_lists/sm80/list.cuh"

namespace attune::kernels::block_lists::sm80 {

struct ManyShared {
  int counts[2][kWarps][3];
  int above[kWarps];
  int equal[kWarps];
};

/// Scores of a warp's run of blocks, 32 at a time. Where they fit they are read once.
class Run {
 public:
  static constexpr int kOfLane = 16;

  __device__ Run(const float* scores, int num) : scores_(scores) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int length = ((num + kWarps - 1) / kWarps + 31) / 32 * 32;
    begin_ = min(warp * length, num);
    end_ = min(begin_ + length, num);
    held_ = length <= 32 * kOfLane;
    if (held_) load(begin_);
  }

  /// Calls take(block, rank); rank = 0 for lanes that have none.
  template <class Take>
  __device__ __forceinline__ void for_each(Take take) {
    for (int first = begin_; first < end_; first += 32 * kOfLane) {
      if (!held_) load(first);
#pragma unroll
      for (int i = 0; i < kOfLane; ++i)
        if (first + 32 * i < end_) take(first + 32 * i + lane(), ranks_[i]);
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ void load(int first) {
    float numbers[kOfLane];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int at = first + 32 * i + lane();
      numbers[i] = at < end_ ? scores_[at] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
      ranks_[i] = first + 32 * i + lane() < end_ ? rank_of(numbers[i]) : 0u;
  }

  const float* scores_;
  int begin_;
  int end_;
  bool held_;
  unsigned ranks_[kOfLane];
};

/// The rank of the last of the `wanted` largest, and how many of those that have it are kept.
struct Threshold {
  unsigned rank;
  int equals;
};

__device__ __forceinline__ Threshold find_threshold(ManyShared& shared, Run& mine, int wanted) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Threshold found{0, wanted};
  for (int shift = 30; shift >= 0; shift -= 2) {
    const unsigned step = 1u << shift;
    // Of digits 1, 2 and 3 behind the bits that are known: ranks of this digit and above.
    int own[3] = {};
    mine.for_each([&](int, unsigned rank) {
#pragma unroll
      for (int d = 0; d < 3; ++d) {
        const unsigned from = found.rank + static_cast<unsigned>(d + 1) * step;
        own[d] += __popc(__ballot_sync(kAllLanes, rank >= from ? 1 : 0));
      }
    });
    int(&counts)[kWarps][3] = shared.counts[shift / 2 % 2];
    if (lane < 3) counts[warp][lane] = lane == 0 ? own[0] : lane == 1 ? own[1] : own[2];
    __syncthreads();
    unsigned digit = 0;
#pragma unroll
    for (int d = 0; d < 3; ++d) {
      int total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += counts[w][d];
      if (total >= wanted) digit = static_cast<unsigned>(d + 1);
    }
    found.rank += digit * step;
  }
  // What is above the threshold is kept; the rest are equals.
  int above = 0;
  mine.for_each([&](int, unsigned rank) {
    above += __popc(__ballot_sync(kAllLanes, rank > found.rank ? 1 : 0));
  });
  if (lane == 0) shared.above[warp] = above;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) found.equals -= shared.above[w];
  return found;
}

/// Writes `wanted` of the blocks [first, first + num), those of largest score, to `out`, ascending.
__device__ __forceinline__ void keep_largest(ManyShared& shared, const float* scores, int first,
                                             int num, int wanted, std::int32_t* out) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Run mine(scores + first, num);
  const Threshold threshold = find_threshold(shared, mine, wanted);
  int equal = 0;
  mine.for_each([&](int, unsigned rank) {
    equal += __popc(__ballot_sync(kAllLanes, rank == threshold.rank ? 1 : 0));
  });
  if (lane == 0) shared.equal[warp] = equal;
  __syncthreads();
  int equals = 0;  // in front of this warp's run, then of its lanes
  int above = 0;
  int all_equals = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) equals += shared.equal[w];
    if (w < warp) above += shared.above[w];
    all_equals += shared.equal[w];
  }
  const int passed_over = all_equals - threshold.equals;  // the first of them
  int written = above + max(0, equals - passed_over);
  const unsigned before = (1u << lane) - 1;
  mine.for_each([&](int at, unsigned rank) {
    const bool is_equal = rank == threshold.rank;
    const unsigned of_equal = __ballot_sync(kAllLanes, is_equal ? 1 : 0);
    const bool keep =
        rank > threshold.rank || (is_equal && equals + __popc(of_equal & before) >= passed_over);
    const unsigned of_kept = __ballot_sync(kAllLanes, keep ? 1 : 0);
    if (keep) out[written + __popc(of_kept & before)] = first + at;
    equals += __popc(of_equal);
    written += __popc(of_kept);
  });
}

}  // namespace attune::kernels::block_lists::sm80
