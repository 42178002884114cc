#include "kernels/top_k/sm80/launch.hpp"

#include <cmath>

#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::top_k::sm80 {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kDigits = 256;  ///< values of a digit: one a thread
static_assert(kDigits == kThreads);
constexpr unsigned kAllLanes = 0xffffffffu;

/// Integers in the order of the numbers.
__device__ __forceinline__ unsigned rank_of(float x) {
  if (!(x == x)) x = -INFINITY;
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 becomes 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct Shared {
  int counts[kDigits];
  int above[kDigits + 1];  ///< numbers whose digit is this or larger
  int of_warp[kWarps];
  int digit;
};

/// Flags of the threads before this one, and of all.
struct Scan {
  int before;
  int total;
};

__device__ __forceinline__ Scan scan(Shared& shared, bool flag) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned bits = __ballot_sync(kAllLanes, flag ? 1 : 0);
  if (lane == 0) shared.of_warp[warp] = __popc(bits);
  __syncthreads();
  Scan found{__popc(bits & ((1u << lane) - 1)), 0};
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) found.before += shared.of_warp[w];
    found.total += shared.of_warp[w];
  }
  __syncthreads();
  return found;
}

struct Threshold {
  unsigned rank;    ///< of the last number that is kept
  int passed_over;  ///< of those that have it, the first so many
};

/// Digit by digit, from the top.
__device__ Threshold find_threshold(Shared& shared, const float* scores, int n, int k) {
  const int mine = static_cast<int>(threadIdx.x);
  unsigned rank = 0;
  int kept = k;
  int present = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    shared.counts[mine] = 0;
    __syncthreads();
    for (int i = mine; i < n; i += kThreads) {
      const unsigned r = rank_of(scores[i]);
      const bool candidate = shift == 24 || r >> (shift + 8) == rank >> (shift + 8);
      if (candidate) atomicAdd(&shared.counts[r >> shift & (kDigits - 1)], 1);
    }
    __syncthreads();
    shared.above[mine] = shared.counts[mine];
    if (mine == 0) shared.above[kDigits] = 0;
    __syncthreads();
    for (int by = 1; by < kDigits; by *= 2) {
      const int more = mine + by < kDigits ? shared.above[mine + by] : 0;
      __syncthreads();
      shared.above[mine] += more;
      __syncthreads();
    }
    if (shared.above[mine] >= kept && shared.above[mine + 1] < kept) shared.digit = mine;
    __syncthreads();
    const int digit = shared.digit;
    rank |= static_cast<unsigned>(digit) << shift;
    kept -= shared.above[digit + 1];
    present = shared.counts[digit];
    __syncthreads();
  }
  return {rank, present - kept};
}

__device__ __forceinline__ int slot_of(const Params& p, const std::int32_t* pages, int key) {
  const int entry = key / p.page_size;
  return pages[entry] * p.page_size + key - entry * p.page_size;
}

/// A block a token.
__global__ void __launch_bounds__(kThreads) choose_keys(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  const int mine = static_cast<int>(threadIdx.x);
  const std::int64_t token = p.first_token + static_cast<std::int64_t>(blockIdx.x);
  const int visible = p.visible[token];
  const std::int32_t* const pages = p.kv_indices + p.entry_begin[token];
  const float* const scores = p.scores + static_cast<std::int64_t>(blockIdx.x) * p.scores_stride;
  std::int32_t* const list = p.lists + token * p.lists_stride;
  std::int32_t* const slots = p.slots + token * p.topk;
  const int kept = min(visible, p.topk);
  if (visible <= p.topk) {
    for (int key = mine; key < visible; key += kThreads) {
      list[key] = key;
      slots[key] = slot_of(p, pages, key);
    }
  } else {
    const Threshold threshold = find_threshold(shared, scores, visible, p.topk);
    int written = 0;
    int equals = 0;
    for (int first = 0; first < visible && written < kept; first += kThreads) {
      const int key = first + mine;
      const unsigned rank = key < visible ? rank_of(scores[key]) : 0;
      const bool equal = key < visible && rank == threshold.rank;
      const Scan of_equals = scan(shared, equal);
      const bool keep =
          key < visible &&
          (rank > threshold.rank || (equal && equals + of_equals.before >= threshold.passed_over));
      const Scan of_kept = scan(shared, keep);
      if (keep) {
        list[written + of_kept.before] = key;
        slots[written + of_kept.before] = slot_of(p, pages, key);
      }
      equals += of_equals.total;
      written += of_kept.total;
    }
  }
  for (int i = kept + mine; i < p.topk; i += kThreads) list[i] = -1;
  if (mine == 0) p.kept[token] = kept;
}

__global__ void __launch_bounds__(kThreads) read_lists(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  const int mine = static_cast<int>(threadIdx.x);
  const std::int64_t token = p.first_token + static_cast<std::int64_t>(blockIdx.x);
  const int visible = p.visible[token];
  const std::int32_t* const pages = p.kv_indices + p.entry_begin[token];
  const std::int32_t* const list = p.lists + token * p.lists_stride;
  std::int32_t* const slots = p.slots + token * p.topk;
  int written = 0;
  for (int first = 0; first < p.topk; first += kThreads) {
    const int key = first + mine < p.topk ? list[first + mine] : -1;
    const bool keep = key >= 0 && key < visible;
    const Scan of_kept = scan(shared, keep);
    if (keep) slots[written + of_kept.before] = slot_of(p, pages, key);
    written += of_kept.total;
  }
  if (mine == 0) p.kept[token] = written;
}

}  // namespace

Status launch_choose(const Params& params, cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  ptx::launch(choose_keys, static_cast<unsigned>(params.num_tokens), kThreads, 0, stream, params);
  return base::cuda::launch_status("choose_keys");
}

Status launch_read(const Params& params, cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  ptx::launch(read_lists, static_cast<unsigned>(params.num_tokens), kThreads, 0, stream, params);
  return base::cuda::launch_status("read_lists");
}

}  // namespace attune::kernels::top_k::sm80
