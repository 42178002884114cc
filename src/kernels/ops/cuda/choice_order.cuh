// What choose.cu's three kernels agree on: the order of tokens, what they weigh, and the bins that
// a row falls into.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/ops/choose.hpp"

namespace attune::kernels::ops::cuda {

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

/// Of some tokens that stand together in the order.
struct Sum {
  Key weight;
  int count;
};

__device__ __forceinline__ Sum operator+(Sum a, Sum b) {
  return {a.weight + b.weight, a.count + b.count};
}

/// The first and the last key of a row, or of part of one, and how many there are.
struct Survey {
  Key highest;
  Key lowest;
  int count;

  [[nodiscard]] __device__ static Survey none() { return {0, ~Key{0}, 0}; }

  __device__ __forceinline__ void add(Key key) {
    if (key == 0) return;
    highest = key > highest ? key : highest;
    lowest = key < lowest ? key : lowest;
    ++count;
  }
  __device__ __forceinline__ void add(const Survey& more) {
    highest = more.highest > highest ? more.highest : highest;
    lowest = more.lowest < lowest ? more.lowest : lowest;
    count += more.count;
  }
};

/// The first token is the answer, or there is none.
__device__ __forceinline__ bool takes_first(const Choice& choice, const Survey& row) {
  return row.count <= 1 || choice.temperature == 0.0 || choice.top_k == 1 ||
         logit_of(row.highest) == INFINITY;
}

constexpr int kBins = 1024;

/// A row's weights and bins. Weights are whole multiples of a power of two: sums do not depend on
/// their order. Bins are even steps down from the best logit, over what weighs anything: tokens of
/// a bin stand together in the order, bin 0 first.
class Scale {
 public:
  __device__ Scale(const Survey& row, double temperature, std::int64_t width)
      : top_(logit_of(row.highest)), rate_(fmin(1.0 / temperature, DBL_MAX)) {
    Key most = 1;
    while (most < static_cast<Key>(width)) most *= 2;
    unit_ = static_cast<float>((Key{1} << 62) / most);  // no sum overflows
    constexpr double kWeightless = 44;                  // e^-44 is nothing in any unit
    const float weighty =
        static_cast<float>(fmin(kWeightless * temperature, static_cast<double>(FLT_MAX)));
    const float span = fminf(top_ - logit_of(row.lowest), weighty);
    bins_per_logit_ = span > 0 ? fminf(kBins / span, FLT_MAX) : 0.0f;
  }

  /// Relative to the best token's.
  [[nodiscard]] __device__ __forceinline__ float share(Key key) const {
    return expf(static_cast<float>((static_cast<double>(logit_of(key)) - top_) * rate_));
  }
  [[nodiscard]] __device__ __forceinline__ Key weight(float share) const {
    return static_cast<Key>(share * unit_);
  }
  [[nodiscard]] __device__ __forceinline__ int bin(Key key) const {
    const float at = (top_ - logit_of(key)) * bins_per_logit_;
    return at < kBins ? static_cast<int>(at) : kBins - 1;  // the last one for infinity times 0, too
  }

 private:
  float top_;
  double rate_;
  float unit_;
  float bins_per_logit_;
};

/// Sums that a block's threads add to, in shared memory, which adds 32 bits at a time.
struct Bins {
  unsigned low[kBins];
  unsigned high[kBins];
  int counts[kBins];

  __device__ __forceinline__ void clear() {
    for (unsigned i = threadIdx.x; i < kBins; i += blockDim.x) {
      low[i] = 0;
      high[i] = 0;
      counts[i] = 0;
    }
  }
  __device__ __forceinline__ void add(int bin, Key weight) {
    const auto part = static_cast<unsigned>(weight);
    const unsigned before = atomicAdd(&low[bin], part);
    const unsigned carry = before + part < part ? 1 : 0;
    const unsigned more = static_cast<unsigned>(weight >> 32) + carry;
    if (more != 0) atomicAdd(&high[bin], more);
    atomicAdd(&counts[bin], 1);
  }
  [[nodiscard]] __device__ __forceinline__ Sum of(unsigned bin) const {
    return {static_cast<Key>(high[bin]) << 32 | low[bin], counts[bin]};
  }
};

/// Several loads under way a thread: without, a row waits for each in turn. Keys may be 0.
template <class Body>
__device__ __forceinline__ void each_key(const float* logits, std::int64_t begin, std::int64_t end,
                                         Body body) {
  constexpr int kUnderWay = 8;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kUnderWay * std::int64_t{blockDim.x}) {
    float taken[kUnderWay];
#pragma unroll
    for (int k = 0; k < kUnderWay; ++k) {
      const std::int64_t at = i + k * std::int64_t{blockDim.x};
      taken[k] = at < end ? logits[at] : -INFINITY;
    }
#pragma unroll
    for (int k = 0; k < kUnderWay; ++k) body(key_of(taken[k], i + k * std::int64_t{blockDim.x}));
  }
}

}  // namespace attune::kernels::ops::cuda
