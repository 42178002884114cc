// What the warpgroup does to a key tile and to an item's rows when keys are on the M side.
//
// S^T = K Q^T: thread t holds of the tile's 64 keys 16 (warp) + t / 4 % 8 + 8 h, h in {0, 1}, and
// of each block c of 8 rows the rows 8 c + 2 (t % 4) + e, e in {0, 1}: register 4 c + 2 h + e. O^T
// = V^T P^T: the same with 64 of the output's columns, a panel of values, instead of keys. So a
// thread meets the same rows in both, and every warp sees all rows.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/mla_decode/rows.cuh"
#include "kernels/mla_decode/sm90/few_config.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ptx/wgmma_narrow_shapes.cuh"

namespace attune::kernels::mla_decode::sm90::few {

template <int Rows>
using Scores = float[Rows / 2];
template <int Rows>
using Output = float[kLatentPanels][Rows / 2];
/// Of each of the thread's rows.
template <int Rows>
using RowValues = float[Rows / 8][2];

__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x % 128 / 32); }
/// All threads of the warpgroup.
__device__ __forceinline__ void meet_group() {
  ptx::named_barrier_sync(kGroupBarrier + static_cast<int>(threadIdx.x / 128), 128);
}
/// The first of the thread's two rows in block c.
__device__ __forceinline__ int row_of(int c) { return 8 * c + 2 * (lane() % 4); }

/// Keys a row does not see, among them everything behind the last key, which may be NaN.
template <int Rows>
__device__ __forceinline__ void apply_mask(Scores<Rows>& s, const Params& params,
                                           const attention::LatentItem& item, int block, int tile) {
  const int key = tile * kKeys + 16 * warp() + lane() / 4;
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int token = place_of(params, block, row_of(c) + e, item.qo_len).token;
      const int end = visible_keys(params, item, token);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float& x = s[4 * c + 2 * h + e];
        x = key + 8 * h < end ? x : -INFINITY;
      }
    }
}

/// Running softmax of the thread's rows.
template <int Rows>
struct RowState {
  RowValues<Rows> maximum;  ///< times scale, base 2; all threads agree
  RowValues<Rows> sum;      ///< of this thread's keys

  __device__ __forceinline__ RowState() {
#pragma unroll
    for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        maximum[c][e] = -INFINITY;
        sum[c][e] = 0.0f;
      }
  }
};

/// Each row's maximum over the tile, through shared memory: its keys lie in all warps.
template <int Rows>
__device__ __forceinline__ void tile_maximum(const Scores<Rows>& s, float (&of_warp)[4][Rows],
                                             RowValues<Rows>& top) {
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      top[c][e] = fmaxf(s[4 * c + e], s[4 * c + 2 + e]);
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2)
        top[c][e] = fmaxf(top[c][e], __shfl_xor_sync(kAllLanes, top[c][e], mask));
    }
  if (lane() < 4)
#pragma unroll
    for (int c = 0; c < Rows / 8; ++c)
      *reinterpret_cast<float2*>(&of_warp[warp()][row_of(c)]) = make_float2(top[c][0], top[c][1]);
  meet_group();
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float2 theirs = *reinterpret_cast<const float2*>(&of_warp[w][row_of(c)]);
      top[c][0] = fmaxf(top[c][0], theirs.x);
      top[c][1] = fmaxf(top[c][1], theirs.y);
    }
}

/// Moves the maxima to what the tile's make of them (collective.cuh's rule: only where a score
/// exceeds it by more than 8); `factor` is what everything summed so far must be multiplied with.
/// Returns whether any row of the block has a factor other than 1.
template <int Rows>
__device__ __forceinline__ bool move_maximum(RowState<Rows>& state, const RowValues<Rows>& top,
                                             float scale, RowValues<Rows>& factor) {
  bool moved = false;
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float& maximum = state.maximum[c][e];
      const float next = top[c][e] * scale > maximum + 8.0f ? top[c][e] * scale : maximum;
      factor[c][e] = next == maximum ? 1.0f : ptx::exp2_approx(maximum - finite(next));
      moved = moved || factor[c][e] != 1.0f;
      state.sum[c][e] *= factor[c][e];
      maximum = next;
    }
  return __any_sync(kAllLanes, moved) != 0;
}

template <int Rows>
__device__ __forceinline__ void clear(Output<Rows>& o) {
#pragma unroll
  for (int panel = 0; panel < kLatentPanels; ++panel)
#pragma unroll
    for (int i = 0; i < Rows / 2; ++i) o[panel][i] = 0.0f;
}

template <int Rows>
__device__ __forceinline__ void rescale(Output<Rows>& o, const RowValues<Rows>& factor) {
#pragma unroll
  for (int panel = 0; panel < kLatentPanels; ++panel)
#pragma unroll
    for (int i = 0; i < Rows / 2; ++i) o[panel][i] *= factor[i / 4][i % 2];
}

/// P = 2^(S scale - maximum), rounded, to shared memory as the product's B operand; adds to the
/// sums.
template <class Element, int Rows>
__device__ __forceinline__ void exponentiate(const Scores<Rows>& s, RowState<Rows>& state,
                                             float scale, Element* to) {
  std::uint32_t p[Rows / 16][4];
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        x[e] = ptx::exp2_approx(fmaf(s[4 * c + 2 * h + e], scale, -finite(state.maximum[c][e])));
        state.sum[c][e] += x[e];
      }
      p[c / 2][c % 2 * 2 + h] = ptx::pack_pair<Element>(x[0], x[1]);
    }
  // Matrix 2 c + h of four: rows 8 c …, keys 16 (warp) + 8 h ….
  const int chunk = (2 * warp() + lane() / 8 % 2) ^ (lane() % 8);
#pragma unroll
  for (int i = 0; i < Rows / 16; ++i)
    ptx::stmatrix_trans(to + (16 * i + lane() / 16 * 8 + lane() % 8) * 64 + chunk * 8, p[i]);
}

/// A part of a cut strip: outputs as they are, to be joined by the merge kernel. Calls write(to, c,
/// e) for those of the thread's rows that can exist, row e of block c of 8; nobody reads the others.
template <int Rows, class Write>
__device__ __forceinline__ void for_each_row_of_part(const Params& params, std::int64_t place,
                                                     Write write) {
  const int rows = params.heads_per_block * params.tokens_per_block;
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = row_of(c) + e;
      if (row < rows) write(params.partial_o + (place * Rows + row) * kDimVo, c, e);
    }
}

/// Outputs whose products took a panel of values each: the thread's columns of a panel are 16
/// (warp)
/// + t / 4 % 8 + 8 h.
struct ByPanels {
  /// The finished rows. Pairs of rows become pairs of columns on their way; neighbours trade so
  /// that each thread writes four columns.
  template <class Element, int Rows>
  static __device__ __forceinline__ void write_output(const Output<Rows>& o, const Params& params,
                                                      const attention::LatentItem& item,
                                                      int block) {
    const bool odd = lane() % 2 != 0;
    const int column = 16 * warp() + 4 * (lane() % 4 / 2) + (odd ? 8 : 0);
#pragma unroll
    for (int c = 0; c < Rows / 8; ++c) {
      const RowPlace place = place_of(params, block, 8 * c + lane() / 4, item.qo_len);
      auto* const out =
          static_cast<Element*>(params.o) +
          static_cast<std::int64_t>(item.q_token + place.token) * params.o_token_stride +
          place.head * params.o_head_stride + column;
#pragma unroll
      for (int panel = 0; panel < kLatentPanels; ++panel) {
        std::uint32_t w[2];
#pragma unroll
        for (int h = 0; h < 2; ++h)
          w[h] = ptx::movmatrix_trans(
              ptx::pack_pair<Element>(o[panel][4 * c + 2 * h], o[panel][4 * c + 2 * h + 1]));
        const std::uint32_t got = __shfl_xor_sync(kAllLanes, odd ? w[0] : w[1], 1);
        if (place.exists)
          *reinterpret_cast<uint2*>(out + panel * 64) =
              odd ? make_uint2(got, w[1]) : make_uint2(w[0], got);
      }
    }
  }

  /// Eight threads fill a sector.
  template <int Rows>
  static __device__ __forceinline__ void write_partial(const Output<Rows>& o, float* row, int c,
                                                       int e) {
    float* const out = row + 16 * warp() + lane() / 4;
#pragma unroll
    for (int panel = 0; panel < kLatentPanels; ++panel)
#pragma unroll
      for (int h = 0; h < 2; ++h) out[64 * panel + 8 * h] = o[panel][4 * c + 2 * h + e];
  }
};

/// A part for a meeting: every thread's registers, for the same thread of the other block.
template <int Rows>
__device__ __forceinline__ void leave_part(const Output<Rows>& o, float* place) {
  auto* to = reinterpret_cast<float4*>(place) + threadIdx.x;
#pragma unroll
  for (int panel = 0; panel < kLatentPanels; ++panel)
#pragma unroll
    for (int c = 0; c < Rows / 8; ++c, to += 128)
      *to = make_float4(o[panel][4 * c], o[panel][4 * c + 1], o[panel][4 * c + 2],
                        o[panel][4 * c + 3]);
}

/// Adds the other part to this one. Both products are rounded before the sum, so that it does not
/// matter which part came first.
template <int Rows>
__device__ __forceinline__ void add_part(Output<Rows>& o, const float* place, bool exists,
                                         const RowValues<Rows>& own, const RowValues<Rows>& other) {
  const auto* from = reinterpret_cast<const float4*>(place) + threadIdx.x;
  constexpr int kAtOnce = 16;
  constexpr int kOfPanel = Rows / 8;
#pragma unroll
  for (int begin = 0; begin < kLatentPanels * kOfPanel; begin += kAtOnce) {
    float4 part[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      part[i] = exists ? __ldcg(from + (begin + i) * 128) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int c = (begin + i) % kOfPanel;
      const float values[4] = {part[i].x, part[i].y, part[i].z, part[i].w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float& x = o[(begin + i) / kOfPanel][4 * c + r];
        x = __fadd_rn(__fmul_rn(x, own[c][r % 2]), __fmul_rn(values[r], other[c][r % 2]));
      }
    }
  }
}

}  // namespace attune::kernels::mla_decode::sm90::few
