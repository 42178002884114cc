// THE rule for log-sum-exp (layer attention): natural logarithm; the sink is not inside; a row that
// sees no key is (o = 0, lse = -inf), and merging with it changes nothing. Kernels may work in base
// 2 inside and convert at the edge.
#pragma once

#include <cmath>
#include <limits>

namespace attune::attention {

inline constexpr double kLog2E = 1.44269504088896340736;
inline constexpr double kLn2 = 0.69314718055994530942;

template <class T>
inline constexpr T kEmptyLse = -std::numeric_limits<T>::infinity();

/// Weights of two states over disjoint key sets: o = a.weight * o_a + b.weight * o_b.
template <class T>
struct MergeWeights {
  T a = 0;
  T b = 0;
  T lse = kEmptyLse<T>;
};

template <class T>
[[nodiscard]] inline MergeWeights<T> merge_weights(T lse_a, T lse_b) {
  const T m = lse_a > lse_b ? lse_a : lse_b;
  if (m == kEmptyLse<T>) return {};
  const T wa = std::exp(lse_a - m);
  const T wb = std::exp(lse_b - m);
  return {wa / (wa + wb), wb / (wa + wb), m + std::log(wa + wb)};
}

/// What a sink logit leaves of an output whose keys have log-sum-exp `lse`: o * sink_factor.
/// Applied once, after all merges.
template <class T>
[[nodiscard]] inline T sink_factor(T lse, T sink) {
  if (lse == kEmptyLse<T>) return T(0);
  return T(1) / (T(1) + std::exp(sink - lse));
}

}  // namespace attune::attention
