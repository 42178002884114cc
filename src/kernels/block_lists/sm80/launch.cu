// A thread block a list. Each warp has a run of the scores in registers; two bits of the numbers'
// order a round find the threshold, by counting; counts in front of each run say where what it keeps
// lies.
#include "kernels/block_lists/sm80/launch.hpp"

#include <cmath>

#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::block_lists::sm80 {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr unsigned kAllLanes = 0xffffffffu;

/// Integers in the order of the numbers; 0 is below all of them.
__device__ __forceinline__ unsigned rank_of(float x) {
  if (!(x == x)) x = -INFINITY;
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 becomes 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct Shared {
  int counts[2][kWarps][3];
  int above[kWarps];
  int equal[kWarps];
  int written;
};

/// A token's list for a KV head.
struct List {
  std::int32_t* blocks;  ///< the caller's
  std::int32_t* pages;
  std::int32_t* kept;
  const std::int32_t* entries;  ///< of the request
  int visible;
  int num_blocks;  ///< that the token sees
};

__device__ __forceinline__ List list_of(const Params& p) {
  const int row = static_cast<int>(blockIdx.x);
  const std::int64_t token = p.first_token + row / p.num_heads;
  const int head = row % p.num_heads;
  const std::int64_t list = token * p.num_heads + head;
  const int visible = p.visible[token];
  return {.blocks = p.lists + token * p.lists_token_stride + head * p.lists_head_stride,
          .pages = p.pages + list * p.pages_stride,
          .kept = p.kept + list,
          .entries = p.kv_indices + p.entry_begin[token],
          .visible = visible,
          .num_blocks = (visible + p.block_size - 1) / p.block_size};
}

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

__device__ __forceinline__ Threshold find_threshold(Shared& shared, Run& mine, int wanted) {
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
__device__ __forceinline__ void keep_largest(Shared& shared, const float* scores, int first,
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

/// Where the keys of `count` blocks lie, ascending; all threads, `blocks` is in shared memory.
__device__ __forceinline__ void find_pages(const Params& p, const List& list,
                                           const std::int32_t* blocks, int count) {
  const auto parts =
      static_cast<int>(base::divide(static_cast<std::uint32_t>(p.block_size), p.part));
  for (int i = static_cast<int>(threadIdx.x); i < count * parts; i += kThreads) {
    const int n = i / parts;
    const int key = blocks[n] * p.block_size + (i - n * parts) * static_cast<int>(p.part.divisor);
    if (key >= list.visible) continue;
    const auto entry = static_cast<int>(base::divide(static_cast<std::uint32_t>(key), p.page));
    const std::uint32_t place =
        static_cast<std::uint32_t>(key) - static_cast<std::uint32_t>(entry) * p.page.divisor;
    list.pages[i] =
        list.entries[entry] * p.parts_of_page + static_cast<int>(base::divide(place, p.part));
  }
  if (threadIdx.x != 0) return;
  const int last = count == 0 ? 0 : blocks[count - 1] * p.block_size;
  *list.kept = count == 0 ? 0 : (count - 1) * p.block_size + min(p.block_size, list.visible - last);
}

__global__ void __launch_bounds__(kThreads) choose_blocks(const __grid_constant__ Params p) {
  auto& shared = *reinterpret_cast<Shared*>(ptx::dynamic_shared<128>());
  auto* const blocks = reinterpret_cast<std::int32_t*>(&shared + 1);  // [topk]
  ptx::dependency_release();
  const int thread = static_cast<int>(threadIdx.x);
  const List list = list_of(p);
  const int count = min(list.num_blocks, p.topk);
  // The kernels before write scores, and whoever reads lists may not have ended.
  ptx::dependency_wait();
  if (list.num_blocks <= p.topk) {
    for (int i = thread; i < count; i += kThreads) blocks[i] = i;
  } else {
    const int open = list.num_blocks - p.init_blocks - p.local_blocks;
    const int wanted = p.topk - p.init_blocks - p.local_blocks;
    for (int i = thread; i < p.init_blocks; i += kThreads) blocks[i] = i;
    for (int i = thread; i < p.local_blocks; i += kThreads)
      blocks[p.topk - p.local_blocks + i] = list.num_blocks - p.local_blocks + i;
    if (wanted > 0)
      keep_largest(shared, p.scores + static_cast<std::int64_t>(blockIdx.x) * p.scores_stride,
                   p.init_blocks, open, wanted, blocks + p.init_blocks);
  }
  __syncthreads();
  for (int i = thread; i < p.topk; i += kThreads) list.blocks[i] = i < count ? blocks[i] : -1;
  find_pages(p, list, blocks, count);
}

__global__ void __launch_bounds__(kThreads) read_blocks(const __grid_constant__ Params p) {
  auto& shared = *reinterpret_cast<Shared*>(ptx::dynamic_shared<128>());
  auto* const given = reinterpret_cast<std::int32_t*>(&shared + 1);  // [topk]
  std::int32_t* const taken = given + p.topk;                        // [topk]: -1 for passed over
  std::int32_t* const blocks = taken + p.topk;                       // [topk]
  ptx::dependency_release();
  const int thread = static_cast<int>(threadIdx.x);
  const List list = list_of(p);
  ptx::dependency_wait();
  if (thread == 0) shared.written = 0;
  for (int i = thread; i < p.topk; i += kThreads) given[i] = list.blocks[i];
  __syncthreads();
  for (int i = thread; i < p.topk; i += kThreads) {
    const int block = given[i];
    bool take = block >= 0 && block < list.num_blocks;
    for (int j = 0; take && j < i; ++j) take = given[j] != block;
    taken[i] = take ? block : -1;
    if (take) atomicAdd(&shared.written, 1);
  }
  __syncthreads();
  for (int i = thread; i < p.topk; i += kThreads) {
    if (taken[i] < 0) continue;
    int place = 0;
    for (int j = 0; j < p.topk; ++j) place += taken[j] >= 0 && taken[j] < taken[i] ? 1 : 0;
    blocks[place] = taken[i];
  }
  __syncthreads();
  find_pages(p, list, blocks, shared.written);
}

Status start(const void* kernel, const Params& params, int arrays, const char* what,
             cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  Params copy = params;
  void* arguments[] = {&copy};
  const std::size_t bytes =
      sizeof(Shared) + sizeof(std::int32_t) * static_cast<std::size_t>(arrays * params.topk);
  return base::cuda::call_status(base::cuda::start({.kernel = kernel,
                                                    .blocks = params.num_tokens * params.num_heads,
                                                    .threads = kThreads,
                                                    .shared_bytes = static_cast<int>(bytes)},
                                                   arguments, true, stream),
                                 what);
}

}  // namespace

Status launch_choose(const Params& params, cudaStream_t stream) {
  return start(ptx::kernel_handle(&choose_blocks), params, 1, "choose_blocks", stream);
}

Status launch_read(const Params& params, cudaStream_t stream) {
  return start(ptx::kernel_handle(&read_blocks), params, 3, "read_blocks", stream);
}

}  // namespace attune::kernels::block_lists::sm80
