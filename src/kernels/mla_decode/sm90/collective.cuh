// What one consumer warpgroup does to a key tile: products, mask, online softmax, output.
//
// Thread t holds rows t / 4 % 8 + 16 (warp) + 8 h, h in {0, 1}, of the block's 64, and of each
// 8-column block the columns 2 (t % 4) + {0, 1}: register 4 block + 2 h + e (ptx/wgmma.cuh). Both
// warpgroups hold the same rows in the same places.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/mla_decode/rows.cuh"
#include "kernels/mla_decode/sm90/config.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/ptx/widen.cuh"

namespace attune::kernels::mla_decode::sm90 {

/// A descriptor's step over one panel, and over 16 elements of a row or 16 rows.
inline constexpr std::uint64_t kPanelStep = kPanel * 2 >> 4;
inline constexpr std::uint64_t kColumnStep = 16 * 2 >> 4;
inline constexpr std::uint64_t kRowStep = 16 * 128 >> 4;

using Scores = float[kKeys / 2];
using Output = float[kDimVo / 2 / 2];  ///< one half of the columns
using Probabilities = std::uint32_t[kKeys / 16][4];
using RopeQuery = std::uint32_t[4][4];

__device__ __forceinline__ int warp_of_group() { return static_cast<int>(threadIdx.x % 128 / 32); }

/// The rope columns of this warp's 16 query rows, as A operands.
template <class Element>
__device__ __forceinline__ void load_rope_query(RopeQuery& to, const Element* panel) {
  const int matrix = lane() / 8;
  const int row = 16 * warp_of_group() + 8 * (matrix % 2) + lane() % 8;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int chunk = (2 * step + matrix / 2) ^ (row % 8);
    ptx::ldmatrix_x4(to[step], ptx::shared_address(panel + row * 64 + chunk * 8));
  }
}

/// The queries' latent columns to fp16, each thread its share, where they lie.
template <class Element>
__device__ __forceinline__ void convert_queries(Element (&q)[kLatentPanels][kPanel]) {
  auto* const chunks = reinterpret_cast<uint4*>(&q[0][0]);
  constexpr int kChunks = kLatentPanels * kPanel / 8;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kChunks; i += kConsumers) {
    const uint4 x = chunks[i];
    chunks[i] = make_uint4(ptx::f16_of_bf16(x.x), ptx::f16_of_bf16(x.y), ptx::f16_of_bf16(x.z),
                           ptx::f16_of_bf16(x.w));
  }
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(kConsumerBarrier, kConsumers);
}

/// S = Q_rope K_rope^T.
template <class Element>
__device__ __forceinline__ void issue_rope(Scores& s, RopeQuery& q, std::uint64_t k) {
#pragma unroll
  for (int step = 0; step < 4; ++step)
    ptx::wgmma_rs<Element, kKeys, ptx::Major::k>(s, q[step], k + step * kColumnStep, step > 0);
}

/// S += Q K^T over two panels, or S = where there is nothing to add to.
template <class Element>
__device__ __forceinline__ void issue_two_panels(Scores& s, std::uint64_t q, std::uint64_t k,
                                                 bool adds) {
#pragma unroll
  for (int panel = 0; panel < 2; ++panel)
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const std::uint64_t at = panel * kPanelStep + step * kColumnStep;
      ptx::wgmma_ss<Element, kKeys, ptx::Major::k, ptx::Major::k>(s, q + at, k + at,
                                                                  adds || panel + step > 0);
    }
}

/// O += P V for probabilities of this warpgroup, over one half of its columns.
template <class Element, int Half>
__device__ __forceinline__ void issue_own_pv(Output& o, Probabilities& p, std::uint64_t v) {
  using HalfOutput = float[kDimVo / 8];
  auto& columns = *reinterpret_cast<HalfOutput*>(o + Half * (kDimVo / 8));
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step)
    ptx::wgmma_rs<Element, kDimVo / 4, ptx::Major::mn>(
        columns, p[step], v + Half * 2 * kPanelStep + step * kRowStep, true);
}

/// O += P V for those the other warpgroup left in shared memory.
template <class Element, int Half>
__device__ __forceinline__ void issue_given_pv(Output& o, std::uint64_t p, std::uint64_t v) {
  using HalfOutput = float[kDimVo / 8];
  auto& columns = *reinterpret_cast<HalfOutput*>(o + Half * (kDimVo / 8));
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step)
    ptx::wgmma_ss<Element, kDimVo / 4, ptx::Major::k, ptx::Major::mn>(
        columns, p + step * kColumnStep, v + Half * 2 * kPanelStep + step * kRowStep, true);
}

/// This thread's two rows of the block.
struct Rows {
  int token[2];  ///< of the request
  int head[2];
  bool exists[2];
  int keys[2];      ///< keys below this are visible
  int keys_of_all;  ///< … to every row of the block
};

__device__ __forceinline__ Rows rows_of(const Params& params, const attention::LatentItem& item,
                                        int block) {
  Rows rows;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = 16 * warp_of_group() + lane() / 4 + 8 * h;
    const RowPlace place = place_of(params, block, row, item.qo_len);
    rows.token[h] = place.token;
    rows.head[h] = place.head;
    rows.exists[h] = place.exists;
    rows.keys[h] = visible_keys(params, item, place.token);
  }
  rows.keys_of_all = keys_of_all(params, item, block);
  return rows;
}

/// Keys a row does not see, among them everything behind the last key, which may be NaN.
__device__ __forceinline__ void apply_mask(Scores& s, const Rows& rows, int tile) {
  const int column = tile * kKeys + 2 * (lane() % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int end = rows.keys[h] - column;
#pragma unroll
    for (int block = 0; block < kKeys / 8; ++block)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * block + 2 * h + e];
        x = 8 * block + e < end ? x : -INFINITY;
      }
  }
}

/// Running softmax of this thread's two rows.
struct RowState {
  float maximum[2] = {-INFINITY, -INFINITY};  ///< times scale, base 2
  float sum[2] = {0.0f, 0.0f};  ///< this thread's columns of the tiles this warpgroup worked on
};

/// Moves the maximum; `factor` is what everything summed so far must be multiplied with. Returns
/// whether any row of the warp has a factor other than 1.
__device__ __forceinline__ bool move_maximum(RowState& state, const float (&next)[2],
                                             float (&factor)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    factor[h] = ptx::exp2_approx(state.maximum[h] - finite(next[h]));
    factor[h] = next[h] == state.maximum[h] ? 1.0f : factor[h];
    state.sum[h] *= factor[h];
    state.maximum[h] = next[h];
  }
  return __any_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f) != 0;
}

/// The maximum after a tile with these scores. It moves only where a score exceeds it by more than
/// 8 in log2: probabilities stay below 2^8 and the output needs rescaling but rarely
/// (FlashAttention-4's rule).
__device__ __forceinline__ void next_maximum(const Scores& s, const RowState& state, float scale,
                                             float (&next)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = -INFINITY;
#pragma unroll
    for (int block = 0; block < kKeys / 8; ++block)
      top = fmaxf(top, fmaxf(s[4 * block + 2 * h], s[4 * block + 2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    next[h] = top * scale > state.maximum[h] + 8.0f ? top * scale : state.maximum[h];
  }
}

/// P = 2^(S scale - maximum), rounded in pairs; adds to the sums.
template <class Element>
__device__ __forceinline__ void exponentiate(Scores& s, RowState& state, float scale,
                                             Probabilities& p) {
  const float offset[2] = {finite(state.maximum[0]), finite(state.maximum[1])};
#pragma unroll
  for (int block = 0; block < kKeys / 8; ++block)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float low = ptx::exp2_approx(fmaf(s[4 * block + 2 * h], scale, -offset[h]));
      const float high = ptx::exp2_approx(fmaf(s[4 * block + 2 * h + 1], scale, -offset[h]));
      state.sum[h] += low + high;
      p[block / 2][block % 2 * 2 + h] = ptx::pack_pair<Element>(low, high);
    }
}

__device__ __forceinline__ void rescale(Output& o, const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kDimVo / 4; ++i) o[i] *= factor[i / 2 % 2];
}

/// Probabilities and maximum to the other warpgroup.
template <class Element>
__device__ __forceinline__ void publish(Shared<Element>& shared, int stage, Probabilities& p,
                                        const RowState& state) {
  const int row = 16 * warp_of_group() + lane() % 16;
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    const int chunk = (2 * step + lane() / 16) ^ (row % 8);
    ptx::stmatrix(shared.p[stage] + row * 64 + chunk * 8, p[step]);
  }
  if (lane() % 4 == 0) {
    const int first = 16 * warp_of_group() + lane() / 4;
    shared.maximum[stage][first] = state.maximum[0];
    shared.maximum[stage][first + 8] = state.maximum[1];
  }
  ptx::fence_proxy_async();
  ptx::named_barrier_arrive(kReadyBarrier + stage, kConsumers);
}

/// Zeros the values behind the last key in this warpgroup's panels: they may hold NaN, and 0 * NaN
/// is not 0. Nobody reads the tile as keys any more.
template <class Element>
__device__ __forceinline__ void clear_values(Element (*panels)[kPanel], int valid, int warpgroup) {
  const int chunks = (kKeys - valid) * 8;
  for (int i = static_cast<int>(threadIdx.x % 128); i < chunks; i += 128)
#pragma unroll
    for (int panel = 0; panel < kHalfPanels; ++panel)
      reinterpret_cast<uint4*>(panels[panel])[valid * 8 + i] = make_uint4(0, 0, 0, 0);
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);
}

/// Where this thread's two finished rows go: 16 bytes of every 64, since four neighbouring threads
/// hold a row's 8-column blocks in slices and trade so that each writes whole ones.
template <class Element>
struct Destination {
  Element* row[2];
  bool exists[2];

  __device__ __forceinline__ Destination(const Params& params, const attention::LatentItem& item,
                                         const Rows& rows, int warpgroup) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      exists[h] = rows.exists[h];
      row[h] = static_cast<Element*>(params.o) +
               static_cast<std::int64_t>(item.q_token + rows.token[h]) * params.o_token_stride +
               rows.head[h] * params.o_head_stride + warpgroup * (kDimVo / 2) + 8 * (lane() % 4);
    }
  }

  /// Four 8-column blocks, the first of them `block`; x[j] is what a block's four registers become.
  __device__ __forceinline__ void write(int block, const float (&x)[4][4]) const {
    const int quarter = lane() % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      std::uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) w[j] = ptx::pack_pair<Element>(x[j][2 * h], x[j][2 * h + 1]);
      // A 4 x 4 transpose in two exchanges.
      const bool odd = quarter & 1;
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const std::uint32_t got = __shfl_xor_sync(kAllLanes, odd ? w[j] : w[j + 1], 1);
        w[j] = odd ? got : w[j];
        w[j + 1] = odd ? w[j + 1] : got;
      }
      const bool upper = quarter & 2;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const std::uint32_t got = __shfl_xor_sync(kAllLanes, upper ? w[j] : w[j + 2], 2);
        w[j] = upper ? got : w[j];
        w[j + 2] = upper ? w[j + 2] : got;
      }
      if (exists[h])
        *reinterpret_cast<uint4*>(row[h] + 8 * block) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
};

/// The finished half rows: outputs times what their rows are divided by.
template <class Element>
__device__ __forceinline__ void write_output(const Output& o, const float (&inverse)[2],
                                             const Destination<Element>& to) {
#pragma unroll
  for (int block = 0; block < kDimVo / 2 / 8; block += 4) {
    float x[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) x[j][e] = o[4 * (block + j) + e] * inverse[e / 2];
    to.write(block, x);
  }
}

/// … where another part at `place` is half of it. Both products are rounded before the sum, so that
/// it does not matter which part came first.
template <class Element>
__device__ __forceinline__ void write_joined(const Output& o, const float* place, bool exists,
                                             const float (&own)[2], const float (&other)[2],
                                             const Destination<Element>& to) {
  const auto* from = reinterpret_cast<const float4*>(place) + threadIdx.x;
  constexpr int kAtOnce = 16;
#pragma unroll
  for (int begin = 0; begin < kDimVo / 16; begin += kAtOnce) {
    float4 part[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      part[i] = exists ? __ldcg(from + (begin + i) * kConsumers) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 4) {
      float x[4][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4& theirs = part[i + j];
        const float values[4] = {theirs.x, theirs.y, theirs.z, theirs.w};
#pragma unroll
        for (int e = 0; e < 4; ++e)
          x[j][e] = __fadd_rn(__fmul_rn(o[4 * (begin + i + j) + e], own[e / 2]),
                              __fmul_rn(values[e], other[e / 2]));
      }
      to.write(begin + i, x);
    }
  }
}

/// The power of two that puts numbers up to `top` below 2^15, and its inverse.
__device__ __forceinline__ void factors_of(float top, float& scale, float& inverse) {
  constexpr std::uint32_t kBias = 127;
  constexpr std::uint32_t kTop = 14;
  const std::uint32_t exponent =
      min(max(__float_as_uint(top) >> 23 & 0xffu, kTop + 1), 2 * kBias - 1);
  scale = __uint_as_float((2 * kBias + kTop - exponent) << 23);
  inverse = __uint_as_float((exponent - kTop) << 23);
}

/// A part of a cut strip, to be joined by the merge kernel: half rows of fp16 (HalfParts). Through
/// `room`, 2 KB of each warp, so that a row's columns are written a line at a time: as registers
/// hold them an instruction would visit eight.
__device__ __forceinline__ void write_partial(const Output& o, float* place, __half* room,
                                              bool exists, int warpgroup) {
  float scale[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = 0.0f;
#pragma unroll
    for (int block = 0; block < kDimVo / 2 / 8; ++block)
      top = fmaxf(top, fmaxf(fabsf(o[4 * block + 2 * h]), fabsf(o[4 * block + 2 * h + 1])));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    float inverse;
    factors_of(top, scale[h], inverse);
    if (exists && lane() % 4 == 0)
      place[(16 * warp_of_group() + lane() / 4 + 8 * h) * kDimVo + HalfParts::kFactorsAt +
            warpgroup] = inverse;
  }
  constexpr int kColumns = 64;
  room += threadIdx.x / 32 * 16 * kColumns;
  const int row = lane() % 16;
#pragma unroll
  for (int first = 0; first < kDimVo / 2 / 8; first += kColumns / 8) {
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
      std::uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* x = o + 4 * (first + 2 * step + i / 2) + 2 * (i % 2);
        w[i] = ptx::pack_pair<__half>(x[0] * scale[i % 2], x[1] * scale[i % 2]);
      }
      // Chunks of 16 bytes change places so that eight rows meet every bank once.
      const int chunk = (2 * step + lane() / 16) ^ (row % 8);
      ptx::stmatrix(room + row * kColumns + chunk * 8, w);
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int from = 4 * n + lane() / 8;
      const int chunk = (lane() % 8) ^ (from % 8);
      auto* const to = reinterpret_cast<__half*>(place + (16 * warp_of_group() + from) * kDimVo) +
                       warpgroup * HalfParts::kColumns + 8 * first + 8 * (lane() % 8);
      if (exists)
        *reinterpret_cast<uint4*>(to) =
            *reinterpret_cast<const uint4*>(room + from * kColumns + chunk * 8);
    }
    __syncwarp();
  }
}

/// A part for a meeting: every thread's registers, for the same thread of the other block.
__device__ __forceinline__ void leave_part(const Output& o, float* place) {
  auto* to = reinterpret_cast<float4*>(place) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kDimVo / 16; ++i)
    to[i * kConsumers] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
}

}  // namespace attune::kernels::mla_decode::sm90
