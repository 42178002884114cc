// What the rows of a warpgroup see, and what is done to a tile of raw scores before its softmax.
#pragma once

#include <cmath>

#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ragged_prefill/sm90/config.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

inline constexpr float kLog2E = 1.44269504f;

/// Positions of a warpgroup's rows and the keys they see, relative to the request's first key.
struct Rows {
  int first = 0;  ///< position of the warpgroup's first row
  int last = 0;
  int warp_first = 0;  ///< of this warp's 16 rows
  int warp_last = 0;
  int own[2] = {};  ///< of this thread's two rows
  int kv_len = 0;
};

/// KvLoad::blocks: which tokens of an item a warpgroup, a warp and a thread have rows of.
struct RowTokens {
  std::uint32_t warpgroup = 0;  ///< a bit each
  std::uint32_t warp = 0;
  int own[2] = {};

  __device__ RowTokens(const Params& params, int warpgroup_row, int warp_row, int first_row)
      : warpgroup(between(warpgroup_row, warpgroup_row + 63, params.pack_shift)),
        warp(between(warp_row, warp_row + 15, params.pack_shift)),
        own{first_row >> params.pack_shift, (first_row + 8) >> params.pack_shift} {}

  /// Rows as they stand to a tile that the tokens of `kept` keep: others are before all keys.
  [[nodiscard]] __device__ __forceinline__ Rows meet(const Rows& rows, std::uint32_t kept) const {
    constexpr int kSeesNone = -1;
    Rows now = rows;
    now.first = (kept & warpgroup) == warpgroup ? rows.first : kSeesNone;
    now.warp_first = (kept & warp) == warp ? rows.warp_first : kSeesNone;
    now.warp_last = (kept & warp) != 0 ? rows.warp_last : kSeesNone;
#pragma unroll
    for (int h = 0; h < 2; ++h) now.own[h] = (kept >> own[h] & 1) != 0 ? rows.own[h] : kSeesNone;
    return now;
  }

 private:
  static __device__ std::uint32_t between(int first_row, int last_row, int shift) {
    return ((2u << (last_row >> shift)) - 1) & ~((1u << (first_row >> shift)) - 1);
  }
};

__device__ __forceinline__ int visible_end(const Params& params, int position, int kv_len) {
  if (params.window_right < 0) return kv_len;
  return min(kv_len, position + 1 + params.window_right);
}

/// Whether some row of the warpgroup does not see some key of the tile.
template <class C>
__device__ __forceinline__ bool needs_mask(const Params& params, const Rows& rows, int tile) {
  const int begin = tile * C::kKeyTile;
  return begin + C::kKeyTile > visible_end(params, rows.first, rows.kv_len) ||
         (params.window_left >= 0 && begin < rows.last - params.window_left);
}

/// Scores of columns [8 Begin, 8 End) that a row does not see become -infinity.
template <class C, int Begin = 0, int End = C::kKeyTile / 8>
__device__ __forceinline__ void apply_mask(float (&s)[C::kKeyTile / 2], const Params& params,
                                           const Rows& rows, int tile) {
  const int column = tile * C::kKeyTile + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int end = visible_end(params, rows.own[h], rows.kv_len) - column;
#pragma unroll
    for (int block = Begin; block < End; ++block)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * block + 2 * h + e];
        x = 8 * block + e < end ? x : -INFINITY;
      }
  }
  if (params.window_left < 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int begin = rows.own[h] - params.window_left - column;
#pragma unroll
    for (int block = Begin; block < End; ++block)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * block + 2 * h + e];
        x = 8 * block + e >= begin ? x : -INFINITY;
      }
  }
}

/// tanh(s * inner), in place; the cap is left to the softmax's scale. By 1 - 2 / (e^2x + 1): the
/// hardware's own tanh is good to 2^-11 only, and a cap of 50 would make that 0.02 of a logit.
template <int N>
__device__ __forceinline__ void apply_soft_cap(float (&s)[N], float inner) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float e = ptx::exp2_approx(s[i] * (2.0f * kLog2E * inner));
    s[i] = fmaf(-2.0f, ptx::reciprocal_approx(e + 1.0f), 1.0f);
  }
}

}  // namespace attune::kernels::ragged_prefill::sm90
