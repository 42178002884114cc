// A cluster of blocks chooses a token's keys, each from a run of them, each warp from a run of its
// block's: four digits of the numbers' order find the threshold, counts in front of each run say
// where what it keeps is to lie.
#include "kernels/top_k/sm90/launch.hpp"

#include <cmath>

#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::top_k::sm90 {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kPasses = 4;
constexpr int kBits = 32 / kPasses;
constexpr int kDigits = 1 << kBits;
static_assert(kDigits <= kThreads);
constexpr int kDigitsOfLane = kDigits / 32;
constexpr unsigned kAllLanes = 0xffffffffu;

/// Integers in the order of the numbers.
__device__ __forceinline__ unsigned rank_of(float x) {
  if (!(x == x)) x = -INFINITY;
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 becomes 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Keys whose number is above the threshold, and at it.
struct Tally {
  int above;
  int equal;
};

struct Shared {
  int counts[kPasses][kDigits];  ///< of this block's keys that agree with the digits found so far
  int totals[kDigits];           ///< of all blocks
  Tally of_warp[kWarps];
  Tally of_block;
  /// The digit that was found, how many of the numbers that have it are kept, of how many.
  int digit;
  int kept;
  int present;
};

/// Keys [begin, end), a multiple of a warp's width from the next.
struct Run {
  int begin;
  int end;
};

__device__ __forceinline__ Run part_of(Run all, int part, int parts) {
  const int keys = ((all.end - all.begin + parts - 1) / parts + 31) / 32 * 32;
  const int begin = min(all.begin + part * keys, all.end);
  return {begin, min(begin + keys, all.end)};
}

/// What no number has.
constexpr unsigned kNoKey = 0;

/// A warp's keys, 32 at a time. So many of them are read before any is looked at; where there are
/// no more they are read once.
class Keys {
 public:
  __device__ Keys(const float* scores, Run run) : scores_(scores), run_(run) {
    if (held()) load(run.begin);
  }

  /// Calls take(key, rank), rank = kNoKey for lanes that have none.
  template <class Take>
  __device__ __forceinline__ void for_each(Take take) {
    const bool once = held();
    for (int first = run_.begin; first < run_.end; first += 32 * kOfLane) {
      if (!once) load(first);
#pragma unroll
      for (int i = 0; i < kOfLane; ++i)
        if (first + 32 * i < run_.end) take(first + 32 * i + lane(), ranks_[i]);
    }
  }

 private:
  static constexpr int kOfLane = 16;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ __forceinline__ bool held() const {
    return run_.end - run_.begin <= 32 * kOfLane;
  }
  __device__ __forceinline__ void load(int first) {
    float numbers[kOfLane];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int key = first + 32 * i + lane();
      numbers[i] = key < run_.end ? scores_[key] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
      ranks_[i] = first + 32 * i + lane() < run_.end ? rank_of(numbers[i]) : kNoKey;
  }

  const float* scores_;
  Run run_;
  unsigned ranks_[kOfLane];
};

/// The first warp: the largest digit that, with all above it, has `kept` numbers.
__device__ __forceinline__ void find_digit(Shared& shared, int kept) {
  const int lane = static_cast<int>(threadIdx.x);
  int counts[kDigitsOfLane];
  int above = 0;
#pragma unroll
  for (int i = 0; i < kDigitsOfLane; ++i)
    above += counts[i] = shared.totals[kDigitsOfLane * lane + i];
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const int more = __shfl_down_sync(kAllLanes, above, static_cast<unsigned>(by));
    if (lane + by < 32) above += more;
  }
#pragma unroll
  for (int i = 0; i < kDigitsOfLane; ++i) {
    const int from = above;  // numbers of this digit and above
    above -= counts[i];
    if (from < kept || above >= kept) continue;
    shared.digit = kDigitsOfLane * lane + i;
    shared.kept = kept - above;
    shared.present = counts[i];
  }
}

struct Threshold {
  unsigned rank;    ///< of the last number that is kept
  int passed_over;  ///< of those that have it, the first so many
};

/// Digit by digit, from the top. `mine`: the keys of this warp.
__device__ __forceinline__ Threshold find_threshold(Shared& shared, Keys& mine, int kept) {
  const int thread = static_cast<int>(threadIdx.x);
  int* const counts = &shared.counts[0][0];
  for (int i = thread; i < kPasses * kDigits; i += kThreads) counts[i] = 0;
  __syncthreads();
  const int blocks = ptx::cluster_size();
  unsigned rank = 0;
  int present = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const int shift = 32 - kBits * (pass + 1);
    int* const own = shared.counts[pass];
    mine.for_each([&](int, unsigned r) {
      const bool agrees = pass == 0 || r >> (shift + kBits) == rank >> (shift + kBits);
      if (r != kNoKey && agrees) atomicAdd(&own[r >> shift & (kDigits - 1)], 1);
    });
    ptx::cluster_sync();
    if (thread < kDigits) {
      int total = 0;
      for (int block = 0; block < blocks; ++block) total += *ptx::shared_of(block, own + thread);
      shared.totals[thread] = total;
    }
    __syncthreads();
    if (thread < 32) find_digit(shared, kept);
    __syncthreads();
    rank |= static_cast<unsigned>(shared.digit) << shift;
    kept = shared.kept;
    present = shared.present;
  }
  return {rank, present - kept};
}

__device__ __forceinline__ void add(Tally& to, const Tally& more) {
  to.above += more.above;
  to.equal += more.equal;
}

/// Of all keys in front of a run.
struct Before {
  Tally warp;
  Tally block;
  Tally next_block;
};

__device__ __forceinline__ Before tally_before(Shared& shared, Keys& mine, unsigned threshold) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Tally tally{0, 0};
  mine.for_each([&](int, unsigned r) {
    tally.above += r > threshold ? 1 : 0;
    tally.equal += r == threshold ? 1 : 0;
  });
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    tally.above += __shfl_xor_sync(kAllLanes, tally.above, mask);
    tally.equal += __shfl_xor_sync(kAllLanes, tally.equal, mask);
  }
  if (lane == 0) shared.of_warp[warp] = tally;
  __syncthreads();
  if (threadIdx.x == 0) {
    Tally all{0, 0};
    for (int w = 0; w < kWarps; ++w) add(all, shared.of_warp[w]);
    shared.of_block = all;
  }
  ptx::cluster_sync();
  Before before{};
  const int rank = ptx::cluster_rank();
  for (int block = 0; block < rank; ++block)
    add(before.block, *ptx::shared_of(block, &shared.of_block));
  before.warp = before.next_block = before.block;
  add(before.next_block, shared.of_block);
  for (int w = 0; w < warp; ++w) add(before.warp, shared.of_warp[w]);
  ptx::cluster_sync();  // before any block's memory goes
  return before;
}

__device__ __forceinline__ int slot_of(const Params& p, const std::int32_t* pages, int key) {
  const int entry = key / p.page_size;
  return pages[entry] * p.page_size + key - entry * p.page_size;
}

__device__ __forceinline__ int slots_before(const Params& p, std::int64_t token) {
  return p.slots_before == nullptr ? 0 : p.slots_before[token];
}

/// A cluster a token.
__global__ void __launch_bounds__(kThreads) choose_keys(const __grid_constant__ Params p) {
  auto& shared = *reinterpret_cast<Shared*>(ptx::dynamic_shared<128>());
  ptx::dependency_release();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int sharers = ptx::cluster_size();
  const int sharer = ptx::cluster_rank();
  const std::int64_t row = static_cast<int>(blockIdx.x) / sharers;
  const std::int64_t token = p.first_token + row;
  const int visible = p.visible[token];
  const std::int32_t* const pages = p.kv_indices + p.entry_begin[token];
  const float* const scores = p.scores + row * p.scores_stride;
  std::int32_t* const list = p.lists + token * p.lists_stride;
  const int before_kept = slots_before(p, token);
  std::int32_t* const slots = p.slots + token * p.slots_stride + before_kept;
  const int kept = min(visible, p.topk);
  const Run run = part_of({0, visible}, sharer, sharers);
  ptx::dependency_wait();
  if (visible <= p.topk) {
    for (int key = run.begin + thread; key < run.end; key += kThreads) {
      list[key] = key;
      slots[key] = slot_of(p, pages, key);
    }
  } else {
    Keys mine(scores, part_of(run, warp, kWarps));
    const Threshold threshold = find_threshold(shared, mine, p.topk);
    const Before before = tally_before(shared, mine, threshold.rank);
    const auto kept_of = [&](const Tally& t) {
      return t.above + max(0, t.equal - threshold.passed_over);
    };
    int equals = before.warp.equal;
    int written = kept_of(before.warp);
    const unsigned lanes_before = (1u << lane) - 1;
    mine.for_each([&](int key, unsigned r) {
      const bool equal = r == threshold.rank;
      const unsigned of_equal = __ballot_sync(kAllLanes, equal ? 1 : 0);
      const bool keep = r > threshold.rank || (equal && equals + __popc(of_equal & lanes_before) >=
                                                            threshold.passed_over);
      const unsigned of_kept = __ballot_sync(kAllLanes, keep ? 1 : 0);
      if (keep) list[written + __popc(of_kept & lanes_before)] = key;
      equals += __popc(of_equal);
      written += __popc(of_kept);
    });
    // Slots by themselves: above, each would wait for its page.
    __syncthreads();
    const int end = kept_of(before.next_block);
#pragma unroll 4
    for (int i = kept_of(before.block) + thread; i < end; i += kThreads)
      slots[i] = slot_of(p, pages, list[i]);
  }
  for (int i = kept + sharer * kThreads + thread; i < p.topk; i += sharers * kThreads) list[i] = -1;
  if (sharer == 0 && thread == 0) p.kept[token] = before_kept + kept;
}

/// A block a token.
__global__ void __launch_bounds__(kThreads) read_lists(const __grid_constant__ Params p) {
  auto& shared = *reinterpret_cast<Shared*>(ptx::dynamic_shared<128>());
  ptx::dependency_release();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const std::int64_t token = p.first_token + static_cast<std::int64_t>(blockIdx.x);
  const int visible = p.visible[token];
  const std::int32_t* const pages = p.kv_indices + p.entry_begin[token];
  const std::int32_t* const list = p.lists + token * p.lists_stride;
  const int before_kept = slots_before(p, token);
  std::int32_t* const slots = p.slots + token * p.slots_stride + before_kept;
  ptx::dependency_wait();
  int written = 0;
  for (int first = 0; first < p.topk; first += kThreads) {
    const int key = first + thread < p.topk ? list[first + thread] : -1;
    const bool keep = key >= 0 && key < visible;
    const unsigned bits = __ballot_sync(kAllLanes, keep ? 1 : 0);
    if (lane == 0) shared.of_warp[warp].above = __popc(bits);
    __syncthreads();
    int at = written + __popc(bits & ((1u << lane) - 1));
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) at += shared.of_warp[w].above;
      written += shared.of_warp[w].above;
    }
    __syncthreads();
    if (keep) slots[at] = slot_of(p, pages, key);
  }
  if (thread == 0) p.kept[token] = before_kept + written;
}

Status start(const void* kernel, const Params& params, int sharers, const char* what,
             cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  Params copy = params;
  void* arguments[] = {&copy};
  return base::cuda::call_status(
      base::cuda::start({.kernel = kernel,
                         .blocks = params.num_tokens * sharers,
                         .threads = kThreads,
                         .shared_bytes = static_cast<int>(sizeof(Shared)),
                         .cluster = sharers},
                        arguments, true, stream),
      what);
}

}  // namespace

Status launch_choose(const Params& params, int sharers, cudaStream_t stream) {
  return start(ptx::kernel_handle(&choose_keys), params, sharers, "choose_keys", stream);
}

Status launch_read(const Params& params, cudaStream_t stream) {
  return start(ptx::kernel_handle(&read_lists), params, 1, "read_lists", stream);
}

}  // namespace attune::kernels::top_k::sm90
