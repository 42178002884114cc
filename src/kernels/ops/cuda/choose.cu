#include "kernels/ops/cuda/choose.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/math.hpp"
#include "kernels/ops/cuda/elements.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::ops::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kHeld = 2048;
using Key = unsigned long long;

/// Larger = earlier in the order; 0 = never chosen (NaN, -inf).
__device__ __forceinline__ Key key_of(float logit, std::int64_t token) {
  if (!(logit > -INFINITY)) return 0;
  const unsigned bits = __float_as_uint(logit + 0.0f);  // both zeros are one number
  const unsigned order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<Key>(order) << 32 | (0xffffffffu - static_cast<unsigned>(token));
}

__device__ __forceinline__ float logit_of(Key key) {
  const auto order = static_cast<unsigned>(key >> 32);
  return __uint_as_float(order >> 31 != 0 ? order & 0x7fffffffu : ~order);
}

__device__ __forceinline__ std::int32_t token_of(Key key) {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<unsigned>(key));
}

/// Of the tokens from a key on.
struct Sum {
  Key weight = 0;
  int count = 0;
};

struct Shared {
  Key weights[2][kMostThreads / 32];
  int counts[2][kMostThreads / 32];
  Key highest[kMostThreads / 32];
  Key lowest[kMostThreads / 32];
  Key held[kHeld];
  int num_held;
};

/// One row; every thread of the block holds the same numbers but its own part of a sum.
class Row {
 public:
  __device__ Row(Shared& shared, const float* logits, std::int64_t width)
      : shared_(shared), logits_(logits), width_(width) {
    Key most = 1;
    while (most < static_cast<Key>(width)) most *= 2;
    scale_ = static_cast<float>((Key{1} << 62) / most);  // no sum overflows
  }

  /// The first and the last key of all, 0 without any, and their number.
  __device__ void survey(Key& highest, Key& lowest, int& count) {
    highest = 0;
    lowest = ~Key{0};
    count = 0;
    for (std::int64_t i = threadIdx.x; i < width_; i += blockDim.x) {
      const Key key = key_of(logits_[i], i);
      if (key == 0) continue;
      highest = key > highest ? key : highest;
      lowest = key < lowest ? key : lowest;
      ++count;
    }
    for (int step = 16; step > 0; step /= 2) {
      const Key more = __shfl_xor_sync(0xffffffffu, highest, step);
      const Key less = __shfl_xor_sync(0xffffffffu, lowest, step);
      highest = more > highest ? more : highest;
      lowest = less < lowest ? less : lowest;
    }
    if (threadIdx.x % 32 == 0) {
      shared_.highest[threadIdx.x / 32] = highest;
      shared_.lowest[threadIdx.x / 32] = lowest;
    }
    count = total({.weight = 0, .count = count}).count;
    for (unsigned i = 0; i < blockDim.x / 32; ++i) {
      highest = shared_.highest[i] > highest ? shared_.highest[i] : highest;
      lowest = shared_.lowest[i] < lowest ? shared_.lowest[i] : lowest;
    }
  }

  __device__ void weigh_by(double temperature, float top) {
    top_ = top;
    rate_ = fmin(1.0 / temperature, DBL_MAX);
  }

  /// Of the keys in [low, high), without those that weigh less than `least`.
  __device__ Sum sum(Key low, Key high, double least = 0) {
    Sum mine;
    each([&](Key key) {
      if (key < low || key >= high) return;
      const float weight =
          expf(static_cast<float>((static_cast<double>(logit_of(key)) - top_) * rate_));
      if (weight < least) return;
      mine.weight += static_cast<Key>(weight * scale_);
      ++mine.count;
    });
    return total(mine);
  }

  struct Cut {
    Key key;  ///< the last token's
    Sum sum;  ///< from it on
  };
  /// The fewest first tokens that suffice. `all` does: low's sum. high lies behind the first.
  template <class Suffices>
  __device__ Cut fewest(Key low, Sum all, Key high, Suffices suffices) {
    Sum before;
    held_ = -1;
    while (all.count - before.count > 1) {
      if (held_ < 0 && all.count - before.count <= kHeld) hold(low, high);
      const Key middle = low + (high - low) / 2;
      Sum more = sum(middle, high);
      more.weight += before.weight;
      more.count += before.count;
      if (suffices(more)) {
        low = middle;
        all = more;
      } else {
        high = middle;
        before = more;
      }
    }
    // One is left in between.
    each([&](Key key) {
      if (key >= low && key < high) shared_.highest[0] = key;
    });
    __syncthreads();
    low = shared_.highest[0];
    __syncthreads();
    held_ = -1;
    return {low, all};
  }

 private:
  template <class Body>
  __device__ __forceinline__ void each(Body body) {
    if (held_ >= 0) {
      for (int i = static_cast<int>(threadIdx.x); i < held_; i += static_cast<int>(blockDim.x))
        body(shared_.held[i]);
    } else {
      for (std::int64_t i = threadIdx.x; i < width_; i += blockDim.x) body(key_of(logits_[i], i));
    }
  }

  /// The keys in [low, high), few, are all that each() sees from here on, in any order.
  __device__ void hold(Key low, Key high) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.num_held = 0;
    __syncthreads();
    each([&](Key key) {
      if (key >= low && key < high) shared_.held[atomicAdd(&shared_.num_held, 1)] = key;
    });
    __syncthreads();
    held_ = shared_.num_held;
  }

  /// Over the block. Two sets of partial sums in turn: one barrier a sum.
  __device__ Sum total(Sum mine) {
    for (int step = 16; step > 0; step /= 2) {
      mine.weight += __shfl_xor_sync(0xffffffffu, mine.weight, step);
      mine.count += __shfl_xor_sync(0xffffffffu, mine.count, step);
    }
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) {
      shared_.weights[turn_][threadIdx.x / 32] = mine.weight;
      shared_.counts[turn_][threadIdx.x / 32] = mine.count;
    }
    __syncthreads();
    Sum all;
    for (unsigned i = 0; i < blockDim.x / 32; ++i) {
      all.weight += shared_.weights[turn_][i];
      all.count += shared_.counts[turn_][i];
    }
    return all;
  }

  Shared& shared_;
  const float* logits_;
  std::int64_t width_;
  float scale_ = 0;
  float top_ = 0;
  double rate_ = 0;
  int held_ = -1;  ///< keys in shared memory; -1 = the row itself is read
  int turn_ = 0;
};

__device__ std::int32_t choose_by(Row& row, const Choice& choice) {
  Key first;
  Key low;
  int count;
  row.survey(first, low, count);
  if (count == 0) return kNoToken;
  const float top = logit_of(first);
  if (choice.temperature == 0.0 || count == 1 || choice.top_k == 1 || top == INFINITY)
    return token_of(first);
  row.weigh_by(choice.temperature, top);
  const Key high = first + 1;
  Sum kept = row.sum(low, high);
  if (choice.top_k > 0 && choice.top_k < kept.count) {
    const auto cut =
        row.fewest(low, kept, high, [&](Sum sum) { return sum.count >= choice.top_k; });
    low = cut.key;
    kept = cut.sum;
  }
  if (choice.top_p < 1.0) {
    const double enough = choice.top_p * static_cast<double>(kept.weight);
    const auto cut = row.fewest(low, kept, high, [&](Sum sum) {
      return sum.count > 0 && static_cast<double>(sum.weight) >= enough;
    });
    low = cut.key;
    kept = cut.sum;
  }
  // The draw needs no cut at min-p: what weighs less comes last, and is beyond this sum.
  const Sum drawn = choice.min_p > 0 ? row.sum(low, high, choice.min_p) : kept;
  const Key at = static_cast<Key>(choice.draw * static_cast<double>(drawn.weight));
  const Key last = drawn.weight - 1;
  const Key beyond = at < last ? at : last;
  return token_of(row.fewest(low, kept, high, [&](Sum sum) { return sum.weight > beyond; }).key);
}

__global__ void __launch_bounds__(kMostThreads)
    choose_kernel(Rows logits, const Choice* choices, std::int32_t* ids) {
  __shared__ Shared shared;
  const std::int64_t t = blockIdx.x;
  Row row(shared, static_cast<const float*>(logits.data) + row_begin(logits, t), logits.width);
  const std::int32_t token = choose_by(row, choices[t]);
  if (threadIdx.x == 0) ids[t] = token;
}

}  // namespace

void choose(const Rows& logits, const Choice* choices, std::int32_t* ids, cudaStream_t stream) {
  if (logits.tokens == 0) return;
  const std::int64_t threads =
      std::clamp<std::int64_t>(base::round_up<std::int64_t>(logits.width, 32), 32, kMostThreads);
  ptx::launch(choose_kernel, static_cast<unsigned>(logits.tokens), static_cast<unsigned>(threads),
              0, stream, logits, choices, ids);
}

}  // namespace attune::kernels::ops::cuda
