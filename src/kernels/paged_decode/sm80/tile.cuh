// What a warp does with one KV tile. Keys stand on the M side of the product and query heads on the
// N side, so a GQA group of 8 wastes nothing (docs/kernels/paged_decode-cuda.md):
//
//   S^T [tokens x heads] = K Q^T        softmax down the columns        O^T [dims x heads] += V^T
//   P^T
//
// A lane holds heads 2j and 2j + 1 of every eight (j = lane % 4) in S^T and in O^T alike, so the
// rescaling of O^T needs no exchange; P^T turns from C layout into B layout by one movmatrix.
#pragma once

#include <type_traits>

#include "kernels/paged_decode/sm80/params.hpp"
#include "kernels/paged_decode/sm80/policy.hpp"
#include "kernels/paged_decode/sm80/ring.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::paged_decode::sm80 {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

template <class Kv>
inline constexpr bool kIsFp8 = sizeof(Kv) == 1;

/// What the products are made in: fp8 keys and values become fp16 exactly.
template <class Kv>
using Compute = std::conditional_t<kIsFp8<Kv>, __half, Kv>;

/// Running state of one warp over the tiles of one row: maximum (base 2), sum, unnormalised
/// outputs. Index [n][e] is head 8 n + 2 j + e; sums are this lane's share until reduce().
template <class Kv, class Policy>
struct WarpState {
  static constexpr int kSteps = Policy::kPartQk / 16;
  static constexpr int kDimTiles = Policy::kPartVo / 16;

  std::uint32_t q[kSteps][Policy::kRowTiles][2];
  float o[kDimTiles][Policy::kRowTiles][4];
  float maximum[Policy::kRowTiles][2];
  float sum[Policy::kRowTiles][2];

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < Policy::kRowTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        maximum[n][e] = -INFINITY;
        sum[n][e] = 0.0f;
      }
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[d][n][e] = 0.0f;
    }
  }

  /// Queries from the warp's shared rows as B fragments; absent rows are zero. The order of dims
  /// within a step is free as long as keys use the same: fp8 keys come four to a lane, so there the
  /// lane's four dims are adjacent.
  __device__ void load_queries(Element element, const std::uint8_t* rows_at, int rows) {
    const int lane = threadIdx.x % 32;
    const int j = lane % 4;
#pragma unroll
    for (int n = 0; n < Policy::kRowTiles; ++n) {
      const int row = 8 * n + lane / 4;
      const auto* base = reinterpret_cast<const std::uint16_t*>(rows_at + (row < rows ? row : 0) *
                                                                              Policy::kQueryStride);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int low = 16 * s + (kIsFp8<Kv> ? 4 * j : 2 * j);
        const int high = kIsFp8<Kv> ? low + 2 : low + 8;
        q[s][n][0] = row < rows ? query_pair(element, base + low) : 0u;
        q[s][n][1] = row < rows ? query_pair(element, base + high) : 0u;
      }
    }
  }

  /// Two adjacent numbers of a query in the type the products are made in.
  static __device__ __forceinline__ std::uint32_t query_pair(Element element,
                                                             const std::uint16_t* at) {
    const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(at);
    if constexpr (kIsFp8<Kv>) {
      if (element == Element::bf16) {
        // Beyond fp16's range a query saturates.
        const float low = fminf(fmaxf(__uint_as_float(pair << 16), -65504.0f), 65504.0f);
        const float high = fminf(fmaxf(__uint_as_float(pair & 0xffff0000u), -65504.0f), 65504.0f);
        return ptx::pack_pair<__half>(low, high);
      }
    }
    return pair;
  }

  /// The lane's share of the sums becomes the warp's.
  __device__ void reduce() {
#pragma unroll
    for (int n = 0; n < Policy::kRowTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int step = 4; step < 32; step *= 2)
          sum[n][e] += __shfl_xor_sync(0xffffffffu, sum[n][e], step);
  }
};

/// Everything about the logits of one row group that is not in the tile.
struct LogitRule {
  float scale_log2 = 0.0f;
  float soft_cap_log2 = 0.0f;
  float temperature = 1.0f;
  int query_pos = 0;
  bool plain = true;  ///< scale only
};

/// What a scaled product becomes when the rule is not plain; `slope_log2` is 0 without ALiBi.
__device__ __forceinline__ float bend_logit(float x, const LogitRule& rule, float slope_log2,
                                            int token) {
  if (rule.soft_cap_log2 > 0.0f) {
    // cap * tanh(x / cap), with tanh(y) = 1 - 2 / (1 + e^2y); both saturate correctly.
    const float e = ptx::exp2_approx(x * (2.0f * kLog2E / rule.soft_cap_log2));
    x = rule.soft_cap_log2 * (1.0f - __fdividef(2.0f, 1.0f + e));
  }
  const int distance = rule.query_pos > token ? rule.query_pos - token : token - rule.query_pos;
  return x * rule.temperature - slope_log2 * static_cast<float>(distance);
}

/// A warp's products of one tile, before scale and mask.
template <class Policy>
using Products = float[Policy::kTile / 16][Policy::kRowTiles][4];

/// s = K Q^T of one tile.
template <class Kv, class Policy>
__device__ __forceinline__ void multiply_tile(const WarpState<Kv, Policy>& state,
                                              const std::uint8_t* stage, Products<Policy>& s) {
  using T = Compute<Kv>;
  constexpr int kBlocks = Policy::kTile / 16;
  constexpr int kRowTiles = Policy::kRowTiles;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[b][n][e] = 0.0f;

  const std::uint32_t keys = ptx::shared_address(stage) + lane % 16 * Policy::kKeyStride;
#pragma unroll
  for (int pair = 0; pair < (Policy::kKeyBytes + 31) / 32; ++pair) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      std::uint32_t a[4];
      ptx::ldmatrix_x4(
          a, keys + b * 16 * Policy::kKeyStride + Policy::in_row(lane, pair * 32 + lane / 16 * 16));
      if constexpr (kIsFp8<Kv>) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // An odd number of units: the last load reads 16 bytes too far, and nobody uses them.
          if (32 * pair + 16 * half >= Policy::kKeyBytes) continue;
          const std::uint32_t wide[4] = {
              ptx::widen_fp8<Kv>(a[2 * half]), ptx::widen_fp8<Kv>(a[2 * half + 1]),
              ptx::widen_fp8<Kv, true>(a[2 * half]), ptx::widen_fp8<Kv, true>(a[2 * half + 1])};
#pragma unroll
          for (int n = 0; n < kRowTiles; ++n)
            ptx::mma_16x8x16<T>(s[b][n], wide, state.q[2 * pair + half][n][0],
                                state.q[2 * pair + half][n][1]);
        }
      } else {
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n)
          ptx::mma_16x8x16<T>(s[b][n], a, state.q[pair][n][0], state.q[pair][n][1]);
      }
    }
  }
}

/// The products of warps that share a tile, each of its part of the head dim, added up in the same
/// order by all of them. `exchange`: of the first of those warps; `turn` is 0 and 1 for one tile after
/// the other, so that who writes cannot meet who still reads.
template <class Policy>
__device__ __forceinline__ void add_dim_parts(std::uint8_t* exchange, int part, int barrier,
                                              int turn, Products<Policy>& s) {
  constexpr int kBlocks = Policy::kTile / 16 * Policy::kRowTiles;
  constexpr int kWarpPlaces = Policy::kExchangeBytes / 16;
  float4* places = reinterpret_cast<float4*>(exchange) + turn * kBlocks * 32 + threadIdx.x % 32;
  const auto each_block = [&](auto&& visit) {
#pragma unroll
    for (int b = 0; b < Policy::kTile / 16; ++b)
#pragma unroll
      for (int n = 0; n < Policy::kRowTiles; ++n) visit(s[b][n], 32 * (b * Policy::kRowTiles + n));
  };
  each_block([&](float(&own)[4], int block) {
    places[part * kWarpPlaces + block] = make_float4(own[0], own[1], own[2], own[3]);
  });
  ptx::named_barrier_sync(barrier, 32 * Policy::kDimParts);
  each_block([&](float(&own)[4], int block) {
#pragma unroll
    for (int e = 0; e < 4; ++e) own[e] = 0.0f;
#pragma unroll
    for (int i = 0; i < Policy::kDimParts; ++i) {
      const float4 v = places[i * kWarpPlaces + block];
      own[0] += v.x;
      own[1] += v.y;
      own[2] += v.z;
      own[3] += v.w;
    }
  });
}

/// Takes one tile, its products made, into the state.
template <class Kv, class Policy>
__device__ __forceinline__ void weigh_tile(WarpState<Kv, Policy>& state, const std::uint8_t* stage,
                                           Products<Policy>& s, const TileRange& range,
                                           const LogitRule& rule,
                                           const float (&slopes)[Policy::kRowTiles][2]) {
  using T = Compute<Kv>;
  constexpr int kBlocks = Policy::kTile / 16;
  constexpr int kRowTiles = Policy::kRowTiles;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[b][n][e] *= rule.scale_log2;
  const int row_of_lane = lane / 4;
  if (!rule.plain) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[b][n][e] = bend_logit(s[b][n][e], rule, slopes[n][e % 2],
                                  range.first + 16 * b + row_of_lane + 8 * (e / 2));
  }
  if (range.partial(Policy::kTile)) {
    // An invisible token weighs nothing, whatever the stage holds there.
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = 16 * b + row_of_lane + 8 * (e / 2);
          if (row < range.begin || row >= range.end) s[b][n][e] = -INFINITY;
        }
  }

  float shift[kRowTiles][2];
  bool moved = false;
  float factor[kRowTiles][2];
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float top = fmaxf(s[0][n][e], s[0][n][e + 2]);
#pragma unroll
      for (int b = 1; b < kBlocks; ++b) top = fmaxf(top, fmaxf(s[b][n][e], s[b][n][e + 2]));
#pragma unroll
      for (int step = 4; step < 32; step *= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
      const float before = state.maximum[n][e];
      const float after = fmaxf(before, top);
      state.maximum[n][e] = after;
      shift[n][e] = after == -INFINITY ? 0.0f : after;
      factor[n][e] = ptx::exp2_approx(before - shift[n][e]);
      moved |= after > before;
    }
  if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) state.sum[n][e] *= factor[n][e];
#pragma unroll
      for (int d = 0; d < WarpState<Kv, Policy>::kDimTiles; ++d)
#pragma unroll
        for (int e = 0; e < 4; ++e) state.o[d][n][e] *= factor[n][e % 2];
    }
  }

  std::uint32_t weights[kBlocks][kRowTiles][2];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[b][n][e] = ptx::exp2_approx(s[b][n][e] - shift[n][e % 2]);
        state.sum[n][e % 2] += s[b][n][e];
      }
      weights[b][n][0] = ptx::movmatrix_trans(ptx::pack_pair<T>(s[b][n][0], s[b][n][1]));
      weights[b][n][1] = ptx::movmatrix_trans(ptx::pack_pair<T>(s[b][n][2], s[b][n][3]));
    }

  // fp16 and bf16: a lane addresses dims 0-7 or 8-15 of a token, the four matrices are the A
  // fragment. fp8: it addresses 16 dims; a transposed pair holds dims 2c and 2c + 1 of two tokens,
  // which become rows c and c + 8 of the fragment.
  const int value_row = kIsFp8<Kv> ? lane % 16 : lane % 8 + lane / 16 * 8;
  const int value_unit = kIsFp8<Kv> ? lane / 16 : lane / 8 % 2;
  const std::uint32_t values = ptx::shared_address(stage) + Policy::kTile * Policy::kKeyStride +
                               value_row * Policy::kValueStride;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int pair = 0; pair < (Policy::kValueBytes + 31) / 32; ++pair) {
      std::uint32_t a[4];
      ptx::ldmatrix_x4_trans(a, values + b * 16 * Policy::kValueStride +
                                    Policy::in_row(value_row, pair * 32 + value_unit * 16));
      if constexpr (kIsFp8<Kv>) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (32 * pair + 16 * half >= Policy::kValueBytes) continue;
          const std::uint32_t low = __byte_perm(a[2 * half], 0, 0x3120);
          const std::uint32_t high = __byte_perm(a[2 * half + 1], 0, 0x3120);
          const std::uint32_t wide[4] = {ptx::widen_fp8<Kv>(low), ptx::widen_fp8<Kv, true>(low),
                                         ptx::widen_fp8<Kv>(high), ptx::widen_fp8<Kv, true>(high)};
#pragma unroll
          for (int n = 0; n < kRowTiles; ++n)
            ptx::mma_16x8x16<T>(state.o[2 * pair + half][n], wide, weights[b][n][0],
                                weights[b][n][1]);
        }
      } else {
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n)
          ptx::mma_16x8x16<T>(state.o[pair][n], a, weights[b][n][0], weights[b][n][1]);
      }
    }
  }
}

/// Where element e of dim tile d lies among the head's outputs.
template <class Kv>
__device__ __forceinline__ int output_dim(int d, int e) {
  const int c = threadIdx.x % 32 / 4;
  return 16 * d + (kIsFp8<Kv> ? 2 * c + e / 2 : c + 8 * (e / 2));
}

/// Where output `dim` of a head lies in a warp's stage while warps are joined: heads are twisted
/// against each other so that lanes meet no bank twice.
template <class Policy>
__device__ __forceinline__ int output_place(int head, int dim) {
  return head * Policy::kOutputStride + (dim ^ (head / 2 % 4 * 8));
}

}  // namespace attune::kernels::paged_decode::sm80
