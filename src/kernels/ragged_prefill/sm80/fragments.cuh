// Who holds what of a tile: warps, lanes, registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/ragged_prefill/sm80/params.hpp"
#include "kernels/ragged_prefill/sm80/policy.hpp"

namespace attune::kernels::ragged_prefill::sm80 {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;
inline constexpr unsigned kAllLanes = 0xffffffffu;

template <class Kv>
inline constexpr bool kIsFp8 = sizeof(Kv) == 1;
/// What the products are made in: fp8 keys and values become fp16 exactly.
template <class Kv>
using Compute = std::conditional_t<kIsFp8<Kv>, __half, Kv>;

/// A warp's rows in blocks of sixteen, in the places of mma's accumulators: a lane has two rows of
/// each block, and pairs of their columns.
template <class Policy>
struct Fragments {
  static constexpr int kRowBlocks = Policy::kWarpRows / 16;
  static constexpr int kSteps = Policy::kDimQk / 16 / Policy::kDimParts;
  static constexpr int kKeyBlocks = Policy::kKeyTile / 8;
  static constexpr int kDimBlocks = Policy::kDimVo / 8 / Policy::kDimParts;

  using Logits = float[kRowBlocks][kKeyBlocks][4];
  /// The state of a warp's rows.
  struct State {
    float o[kRowBlocks][kDimBlocks][4];
    float maximum[kRowBlocks][2];  ///< in base 2; lags behind, see soften
    float sum[kRowBlocks][2];
  };
};

/// What a thread works on.
struct Work {
  const Params& p;
  int warp;
  int lane;
  const attention::PrefillItem* item;
  int kv_head;

  /// The warp's first row of the block, and its part of their head dim.
  template <class Policy>
  __device__ int first_row() const {
    return warp / Policy::kDimParts * Policy::kWarpRows;
  }
  template <class Policy>
  __device__ int dim_part() const {
    return Policy::kDimParts == 1 ? 0 : warp % Policy::kDimParts;
  }
  /// Row of the block that the lane has as the i-th of row block m.
  template <class Policy>
  __device__ int fragment_row(int m, int i) const {
    return first_row<Policy>() + 16 * m + 8 * i + lane / 4;
  }
};

}  // namespace attune::kernels::ragged_prefill::sm80
