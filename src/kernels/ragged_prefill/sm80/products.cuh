// The two products of a tile, out of shared memory. What one ldmatrix brings of keys or values
// serves every row block of the warp.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ragged_prefill/sm80/fragments.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

/// Where ldmatrix finds unit `unit` of rows whose address holds their swizzle already.
template <class Rows>
__device__ __forceinline__ std::uint32_t unit_at(std::uint32_t row, int unit) {
  constexpr int kLow = Rows::kGroup - 1;
  return (row ^ (unit & kLow) * 16) + (unit & ~kLow) * 16;
}
template <class Rows>
__device__ __forceinline__ std::uint32_t row_at(const std::uint8_t* tile, int row, int unit) {
  return ptx::shared_address(tile) + row * Rows::kBytes + (unit ^ Rows::mix(row)) * 16;
}

/// s = Q K^T of the warp's rows and its part of the head dim. A block of keys serves all rows.
template <class Kv, class Policy>
__device__ __forceinline__ void multiply_keys(const Work& work, const std::uint8_t* queries,
                                              const std::uint8_t* keys,
                                              typename Fragments<Policy>::Logits& s) {
  using T = Compute<Kv>;
  using Queries = typename Policy::Queries;
  using Keys = typename Policy::Keys;
  using F = Fragments<Policy>;
  constexpr int kRowBlocks = F::kRowBlocks;
  constexpr int kKeyBlocks = F::kKeyBlocks;
  constexpr int kSteps = F::kSteps;
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[m][b][e] = 0.0f;
  // Whole groups of units, so that a part is a distance.
  const int part = work.dim_part<Policy>();
  queries += part * (Queries::kBytes / Policy::kDimParts);
  keys += part * (Keys::kBytes / Policy::kDimParts);
  if constexpr (kIsFp8<Kv>) {
    // The order of dims within a step is free as long as keys use the same: fp8 keys come four
    // to a lane.
    const int row = work.first_row<Policy>() + work.lane / 4;
    const std::uint8_t* own_row = queries + row * Queries::kBytes + work.lane % 2 * 8;
    const std::uint32_t blocks = row_at<Keys>(keys, work.lane, 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t a[kRowBlocks][4];
      const int unit = (2 * step + work.lane % 4 / 2) ^ Queries::mix(row);
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m) {
        const std::uint8_t* at = own_row + 16 * m * Queries::kBytes + unit * 16;
        const auto low = *reinterpret_cast<const uint2*>(at);
        const auto high = *reinterpret_cast<const uint2*>(at + 8 * Queries::kBytes);
        a[m][0] = low.x;
        a[m][1] = high.x;
        a[m][2] = low.y;
        a[m][3] = high.y;
      }
#pragma unroll
      for (int b = 0; b < kKeyBlocks; b += 4) {
        // Four blocks of eight keys, sixteen dims each.
        std::uint32_t raw[4];
        ptx::ldmatrix_x4(raw, unit_at<Keys>(blocks, step) + 8 * b * Keys::kBytes);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const std::uint32_t low = ptx::widen_fp8<Kv>(raw[n]);
          const std::uint32_t high = ptx::widen_fp8<Kv>(raw[n] >> 16);
#pragma unroll
          for (int m = 0; m < kRowBlocks; ++m) ptx::mma_16x8x16<T>(s[m][b + n], a[m], low, high);
        }
      }
    }
  } else {
    // The next fragments are on their way while these are multiplied.
    const std::uint32_t rows =
        row_at<Queries>(queries, work.first_row<Policy>() + work.lane % 16, work.lane / 16);
    const std::uint32_t blocks =
        row_at<Keys>(keys, work.lane % 8 + work.lane / 16 * 8, work.lane / 8 % 2);
    constexpr int kPairs = kKeyBlocks / 2;
    std::uint32_t a[2][kRowBlocks][4];
    std::uint32_t k[2][4];
    const auto load_rows = [&](int step) {
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m)
        ptx::ldmatrix_x4(a[step % 2][m],
                         unit_at<Queries>(rows, 2 * step) + 16 * m * Queries::kBytes);
    };
    const auto load_keys = [&](int n) {
      ptx::ldmatrix_x4(k[n % 2],
                       unit_at<Keys>(blocks, 2 * (n / kPairs)) + 16 * (n % kPairs) * Keys::kBytes);
    };
    load_rows(0);
    load_keys(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) load_rows(step + 1);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const int n = step * kPairs + pair;
        if (n + 1 < kSteps * kPairs) load_keys(n + 1);
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m) {
          ptx::mma_16x8x16<T>(s[m][2 * pair], a[step % 2][m], k[n % 2][0], k[n % 2][1]);
          ptx::mma_16x8x16<T>(s[m][2 * pair + 1], a[step % 2][m], k[n % 2][2], k[n % 2][3]);
        }
      }
    }
  }
}

/// Logits of warps that have the same rows: each brings its part of the head dim, and all add the
/// parts in the same order. Who reads has passed a barrier of the block when it next writes.
template <class Policy>
__device__ __forceinline__ void add_dim_parts(const Work& work, std::uint8_t* exchange,
                                              typename Fragments<Policy>::Logits& s) {
  using F = Fragments<Policy>;
  constexpr int kBlocks = F::kRowBlocks * F::kKeyBlocks;
  auto* places = reinterpret_cast<float4*>(exchange) + work.lane;
  const int group = work.warp / Policy::kDimParts;
  const auto each_block = [&](auto&& visit) {
#pragma unroll
    for (int m = 0; m < F::kRowBlocks; ++m)
#pragma unroll
      for (int b = 0; b < F::kKeyBlocks; ++b) visit(s[m][b], m * F::kKeyBlocks + b);
  };
  each_block([&](float(&own)[4], int block) {
    places[(work.warp * kBlocks + block) * 32] = make_float4(own[0], own[1], own[2], own[3]);
  });
  ptx::named_barrier_sync(1 + group, 32 * Policy::kDimParts);
  each_block([&](float(&own)[4], int block) {
#pragma unroll
    for (int e = 0; e < 4; ++e) own[e] = 0.0f;
#pragma unroll
    for (int part = 0; part < Policy::kDimParts; ++part) {
      const float4 v = places[((group * Policy::kDimParts + part) * kBlocks + block) * 32];
      own[0] += v.x;
      own[1] += v.y;
      own[2] += v.z;
      own[3] += v.w;
    }
  });
}

/// o += P V of the warp's part of the head dim; the accumulators of one product, packed, are the A
/// operand of the next.
template <class Kv, class Policy>
__device__ __forceinline__ void accumulate_values(const Work& work, const std::uint8_t* values,
                                                  const typename Fragments<Policy>::Logits& s,
                                                  typename Fragments<Policy>::State& state) {
  using T = Compute<Kv>;
  using Values = typename Policy::Values;
  using F = Fragments<Policy>;
  constexpr int kRowBlocks = F::kRowBlocks;
  constexpr int kKeyTile = Policy::kKeyTile;
  values += work.dim_part<Policy>() * (Values::kBytes / Policy::kDimParts);
  const std::uint32_t rows = row_at<Values>(values, work.lane % 16, work.lane / 16);
  [[maybe_unused]] std::uint32_t v[2][4];
#pragma unroll
  for (int t = 0; t < kKeyTile / 16; ++t) {
    std::uint32_t a[kRowBlocks][4];
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&pair)[4] = s[m][2 * t + i / 2];
        a[m][i] = ptx::pack_pair<T>(pair[2 * (i % 2)], pair[2 * (i % 2) + 1]);
      }
    const std::uint32_t block = rows + 16 * t * Values::kBytes;
    if constexpr (kIsFp8<Kv>) {
      static_assert(Policy::kDimVo % 32 == 0);
#pragma unroll
      for (int u = 0; u < F::kDimBlocks / 2; u += 2) {
        // Sixteen dims a unit: the even ones make one block of eight, the odd ones the next.
        std::uint32_t raw[4];
        ptx::ldmatrix_x4_trans(raw, unit_at<Values>(block, u));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t low = __byte_perm(raw[2 * half], 0, 0x3120);
          const std::uint32_t high = __byte_perm(raw[2 * half + 1], 0, 0x3120);
#pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const std::uint32_t v0 = ptx::widen_fp8<Kv>(low >> 16 * odd);
            const std::uint32_t v1 = ptx::widen_fp8<Kv>(high >> 16 * odd);
#pragma unroll
            for (int m = 0; m < kRowBlocks; ++m)
              ptx::mma_16x8x16<T>(state.o[m][2 * (u + half) + odd], a[m], v0, v1);
          }
        }
      }
    } else {
      constexpr int kPairs = F::kDimBlocks / 2;
      constexpr int kLast = kKeyTile / 16 * kPairs - 1;
      const auto load_values = [&](int n) {
        ptx::ldmatrix_x4_trans(
            v[n % 2], unit_at<Values>(rows, 2 * (n % kPairs)) + 16 * (n / kPairs) * Values::kBytes);
      };
      if (t == 0) load_values(0);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const int n = t * kPairs + pair;
        if (n < kLast) load_values(n + 1);
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m) {
          ptx::mma_16x8x16<T>(state.o[m][2 * pair], a[m], v[n % 2][0], v[n % 2][1]);
          ptx::mma_16x8x16<T>(state.o[m][2 * pair + 1], a[m], v[n % 2][2], v[n % 2][3]);
        }
      }
    }
  }
}

}  // namespace attune::kernels::ragged_prefill::sm80
