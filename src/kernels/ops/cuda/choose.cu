#include "kernels/ops/cuda/choose.hpp"

#include <algorithm>

#include "base/math.hpp"
#include "kernels/ops/cuda/choice_order.cuh"
#include "kernels/ops/cuda/elements.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::ops::cuda {
namespace {

constexpr int kPartThreads = 256;
constexpr int kMostParts = 64;
constexpr int kRowThreads = kBins;  // a thread a bin
constexpr int kHeld = 2048;

/// What the kernels leave each other of a row.
struct RowWork {
  Key weights[kBins];
  int counts[kBins];
  Survey parts[kMostParts];
};

struct Job {
  Rows logits;
  const Choice* choices;
  RowWork* work;
  std::int32_t* ids;
  int parts;  ///< blocks that share a row
  std::int64_t part_width;

  [[nodiscard]] __device__ __forceinline__ const float* row(std::int64_t t) const {
    return static_cast<const float*>(logits.data) + row_begin(logits, t);
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t begin() const {
    return blockIdx.y * part_width;
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t end() const {
    return begin() + part_width < logits.width ? begin() + part_width : logits.width;
  }
};

__device__ __forceinline__ Survey over_warp(Survey mine) {
  for (int step = 16; step > 0; step /= 2)
    mine.add({__shfl_xor_sync(0xffffffffu, mine.highest, step),
              __shfl_xor_sync(0xffffffffu, mine.lowest, step),
              __shfl_xor_sync(0xffffffffu, mine.count, step)});
  return mine;
}

/// Of the threads' keys; each of them gets it.
__device__ __forceinline__ Survey over_block(Survey mine, Survey* of_warps) {
  mine = over_warp(mine);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  Survey all = Survey::none();
  for (unsigned i = 0; i < blockDim.x / 32; ++i) all.add(of_warps[i]);
  __syncthreads();
  return all;
}

/// What survey_kernel found; each of the threads gets it.
__device__ __forceinline__ Survey of_parts(const RowWork& work, int parts) {
  Survey mine = Survey::none();
  for (int i = static_cast<int>(threadIdx.x % 32); i < parts; i += 32) mine.add(work.parts[i]);
  return over_warp(mine);
}

__global__ void __launch_bounds__(kPartThreads) survey_kernel(Job job) {
  __shared__ Survey of_warps[kPartThreads / 32];
  const std::int64_t t = blockIdx.x;
  RowWork& work = job.work[t];
  for (unsigned i = blockIdx.y * kPartThreads + threadIdx.x; i < kBins;
       i += gridDim.y * kPartThreads) {
    work.weights[i] = 0;
    work.counts[i] = 0;
  }
  Survey mine = Survey::none();
  each_key(job.row(t), job.begin(), job.end(), [&](Key key) { mine.add(key); });
  mine = over_block(mine, of_warps);
  if (threadIdx.x == 0) work.parts[blockIdx.y] = mine;
}

__global__ void __launch_bounds__(kPartThreads) weigh_kernel(Job job) {
  __shared__ Bins bins;
  const std::int64_t t = blockIdx.x;
  RowWork& work = job.work[t];
  const Survey row = of_parts(work, job.parts);
  if (takes_first(job.choices[t], row)) return;
  const Scale scale(row, job.choices[t].temperature, job.logits.width);
  bins.clear();
  __syncthreads();
  each_key(job.row(t), job.begin(), job.end(), [&](Key key) {
    if (key != 0) bins.add(scale.bin(key), scale.weight(scale.share(key)));
  });
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kBins; i += kPartThreads) {
    const Sum sum = bins.of(i);
    if (sum.count == 0) continue;
    if (sum.weight != 0) atomicAdd(&work.weights[i], sum.weight);
    atomicAdd(&work.counts[i], sum.count);
  }
}

struct Shared {
  Key weights[kBins];  ///< from the first bin on
  int counts[kBins];
  Bins bins;
  Key held[kHeld];
  Survey of_warps[kRowThreads / 32];
  Sum sums[kRowThreads / 32];
  int num_held;
  struct {
    int bin;
    Sum before;
    Sum upto;
  } found;
  Key cut;
};

/// One row; every thread of the block holds the same numbers but its own part of a sum.
class Row {
 public:
  __device__ Row(Shared& shared, const float* logits, std::int64_t width, const Scale& scale)
      : shared_(shared), logits_(logits), width_(width), scale_(scale) {}

  /// Of the row.
  __device__ Sum take(const RowWork& work) {
    const Sum upto = scan({work.weights[threadIdx.x], work.counts[threadIdx.x]});
    shared_.weights[threadIdx.x] = upto.weight;
    shared_.counts[threadIdx.x] = upto.count;
    __syncthreads();
    return {shared_.weights[kBins - 1], shared_.counts[kBins - 1]};
  }

  /// Of the keys from the first to `low`, without those of less than `least` shares.
  __device__ Key weight_of(Key low, double least) {
    Sum mine{};
    each_key(logits_, 0, width_, [&](Key key) {
      if (key < low) return;
      const float share = scale_.share(key);
      if (share >= least) mine.weight += scale_.weight(share);
    });
    const Sum upto = scan(mine);
    if (threadIdx.x == kRowThreads - 1) shared_.found.upto = upto;
    __syncthreads();
    const Key all = shared_.found.upto.weight;
    __syncthreads();
    return all;
  }

  struct Cut {
    Key key;  ///< the last token's
    Sum sum;  ///< from the first to it
  };
  /// The fewest first tokens that suffice; all do, none do not.
  template <class Suffices>
  __device__ Cut fewest(Suffices suffices) {
    const unsigned bin = threadIdx.x;
    const Sum start = bin == 0 ? Sum{} : Sum{shared_.weights[bin - 1], shared_.counts[bin - 1]};
    find({}, start, {shared_.weights[bin], shared_.counts[bin]}, suffices);
    held_ = -1;
    const int wanted = shared_.found.bin;
    gather([&](Key key) { return scale_.bin(key) == wanted; });
    while (num_left() > 1) {
      if (held_ < 0 && num_left() <= kHeld)
        gather([&](Key key) { return key >= low_ && key <= high_; });
      narrow(suffices);
    }
    // low_ to high_ holds one.
    each([&](Key key) {
      if (key >= low_ && key <= high_) shared_.cut = key;
    });
    __syncthreads();
    return {shared_.cut, upto_};
  }

 private:
  [[nodiscard]] __device__ int num_left() const { return upto_.count - before_.count; }

  template <class Body>
  __device__ __forceinline__ void each(Body body) {
    if (held_ >= 0) {
      for (int i = static_cast<int>(threadIdx.x); i < held_; i += kRowThreads)
        body(shared_.held[i]);
    } else {
      each_key(logits_, 0, width_, body);
    }
  }

  /// Sums up to each thread's; a barrier must lie before the next.
  __device__ Sum scan(Sum mine) {
    const unsigned lane = threadIdx.x % 32;
    for (unsigned step = 1; step < 32; step *= 2) {
      const Sum below{__shfl_up_sync(0xffffffffu, mine.weight, step),
                      __shfl_up_sync(0xffffffffu, mine.count, step)};
      if (lane >= step) mine = mine + below;
    }
    if (lane == 31) shared_.sums[threadIdx.x / 32] = mine;
    __syncthreads();
    for (unsigned i = 0; i < threadIdx.x / 32; ++i) mine = mine + shared_.sums[i];
    return mine;
  }

  /// The bin at whose end the tokens suffice first; before_ and upto_ are the sums to its ends.
  template <class Suffices>
  __device__ void find(Sum before, Sum start, Sum end, Suffices suffices) {
    if (suffices(before + end) && !suffices(before + start))
      shared_.found = {static_cast<int>(threadIdx.x), before + start, before + end};
    __syncthreads();
    before_ = shared_.found.before;
    upto_ = shared_.found.upto;
  }

  /// low_ and high_ become the last and the first of the row's wanted keys, which num_left()
  /// counts; if they are few, they are all that each() sees from here on, in any order.
  template <class Wanted>
  __device__ void gather(Wanted wanted) {
    const bool hold = num_left() <= kHeld;
    if (threadIdx.x == 0) shared_.num_held = 0;
    __syncthreads();
    Survey mine = Survey::none();
    each_key(logits_, 0, width_, [&](Key key) {
      if (key == 0 || !wanted(key)) return;
      mine.add(key);
      if (hold) shared_.held[atomicAdd(&shared_.num_held, 1)] = key;
    });
    const Survey all = over_block(mine, shared_.of_warps);
    low_ = all.lowest;
    high_ = all.highest;
    if (hold) held_ = shared_.num_held;
  }

  /// low_ to high_ shrinks to one of kBins steps.
  template <class Suffices>
  __device__ void narrow(Suffices suffices) {
    int shift = 0;
    while ((high_ - low_) >> shift >= kBins) ++shift;
    shared_.bins.clear();
    __syncthreads();
    each([&](Key key) {
      if (key >= low_ && key <= high_)
        shared_.bins.add(static_cast<int>((high_ - key) >> shift),
                         scale_.weight(scale_.share(key)));
    });
    __syncthreads();
    const Sum mine = shared_.bins.of(threadIdx.x);
    const Sum upto = scan(mine);
    find(before_, {upto.weight - mine.weight, upto.count - mine.count}, upto, suffices);
    const auto bin = static_cast<Key>(shared_.found.bin);
    const Key width = Key{1} << shift;
    const Key last = high_ - (bin << shift);
    low_ = last - low_ < width ? low_ : last - (width - 1);
    high_ = last;
    __syncthreads();
  }

  Shared& shared_;
  const float* logits_;
  std::int64_t width_;
  const Scale& scale_;
  int held_ = -1;  ///< keys in shared memory; -1 = the row itself is read
  Sum before_{};   ///< of the keys before high_
  Sum upto_{};     ///< and to low_
  Key low_ = 0;
  Key high_ = 0;
};

__device__ std::int32_t choose_by(Row& row, const RowWork& work, const Choice& choice) {
  Sum kept = row.take(work);
  Key low = 1;
  if (choice.top_k > 0 && choice.top_k < kept.count) {
    const auto cut = row.fewest([&](Sum sum) { return sum.count >= choice.top_k; });
    low = cut.key;
    kept = cut.sum;
  }
  if (choice.top_p < 1.0) {
    const double enough = choice.top_p * static_cast<double>(kept.weight);
    const auto cut = row.fewest(
        [&](Sum sum) { return sum.count > 0 && static_cast<double>(sum.weight) >= enough; });
    low = cut.key;
    kept = cut.sum;
  }
  // The draw needs no cut at min-p: what weighs less comes last, and is beyond this sum.
  const Key drawn = choice.min_p > 0 ? row.weight_of(low, choice.min_p) : kept.weight;
  const Key at = static_cast<Key>(choice.draw * static_cast<double>(drawn));
  const Key last = drawn - 1;
  const Key beyond = at < last ? at : last;
  return token_of(row.fewest([&](Sum sum) { return sum.weight > beyond; }).key);
}

__global__ void __launch_bounds__(kRowThreads) choose_kernel(Job job) {
  __shared__ Shared shared;
  const std::int64_t t = blockIdx.x;
  const RowWork& work = job.work[t];
  const Survey all = of_parts(work, job.parts);
  std::int32_t token = all.count == 0 ? kNoToken : token_of(all.highest);
  if (!takes_first(job.choices[t], all)) {
    const Scale scale(all, job.choices[t].temperature, job.logits.width);
    Row row(shared, job.row(t), job.logits.width, scale);
    token = choose_by(row, work, job.choices[t]);
  }
  if (threadIdx.x == 0) job.ids[t] = token;
}

}  // namespace

std::size_t choose_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * sizeof(RowWork);
}

void choose(const Rows& logits, const Choice* choices, void* workspace, std::int32_t* ids,
            cudaStream_t stream) {
  if (logits.tokens == 0) return;
  constexpr std::int64_t kBlocks = 512;  // some for every SM
  constexpr std::int64_t kLeast = 2048;  // logits that are worth a block
  const std::int64_t parts = std::clamp<std::int64_t>(
      std::min(kBlocks / logits.tokens, base::ceil_div(logits.width, kLeast)), 1, kMostParts);
  const Job job{.logits = logits,
                .choices = choices,
                .work = static_cast<RowWork*>(workspace),
                .ids = ids,
                .parts = static_cast<int>(parts),
                .part_width = base::ceil_div(logits.width, parts)};
  const dim3 grid(static_cast<unsigned>(logits.tokens), static_cast<unsigned>(parts));
  ptx::launch(survey_kernel, grid, kPartThreads, 0, stream, job);
  ptx::launch(weigh_kernel, grid, kPartThreads, 0, stream, job);
  ptx::launch(choose_kernel, static_cast<unsigned>(logits.tokens), kRowThreads, 0, stream, job);
}

}  // namespace attune::kernels::ops::cuda
