// The inverse of a unit lower triangular matrix of kChunk rows by 16 x 16 blocks, one warp a block
// column (layer kernels).
//
//   M_ii = (I + A_ii)^-1 by forward substitution in fp32
//   M_ij = -M_ii sum over j <= k < i of A_ik M_kj
//
// The block products run on tensor cores with numbers split in two bf16 halves, three products of
// four: about 16 bits of each number count. Plain bf16 would lose what the delta rule subtracts.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/tiles.cuh"

namespace attune::kernels::linear::sm90 {

inline constexpr int kBlocks = kChunk / kBlock;

/// Rows are padded so that a fragment's pairs lie in different banks.
struct LowerShared {
  float a[kChunk][kChunk + 8];          ///< A, strictly lower; its upper blocks are not read
  float diagonal[kBlocks][kBlock][24];  ///< M_ii
};

/// A 16 x 16 block as an accumulator: two halves of 8 columns.
struct Block {
  float c[2][4];
};

/// A pair as its bf16 rounding and what that leaves.
struct SplitPair {
  std::uint32_t high;
  std::uint32_t low;
};

__device__ __forceinline__ SplitPair split(float x, float y) {
  const std::uint32_t high = pack(x, y);
  return {high, pack(x - low_of(high), y - high_of(high))};
}

/// sum += (sign) left right; left in shared memory, right an accumulator.
__device__ __forceinline__ void multiply_split(Block& sum, const float* left, int stride,
                                               const Block& right) {
  const int g = lane_id() / 4;
  const int j = lane_id() % 4;
  std::uint32_t a_high[4];
  std::uint32_t a_low[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float2 pair =
        *reinterpret_cast<const float2*>(left + (g + 8 * (r % 2)) * stride + 2 * j + 8 * (r / 2));
    const SplitPair s = split(pair.x, pair.y);
    a_high[r] = s.high;
    a_low[r] = s.low;
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    std::uint32_t b_high[2];
    std::uint32_t b_low[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const SplitPair s = split(right.c[n][2 * half], right.c[n][2 * half + 1]);
      b_high[half] = ptx::movmatrix_trans(s.high);
      b_low[half] = ptx::movmatrix_trans(s.low);
    }
    multiply(sum.c[n], a_low, b_high[0], b_high[1]);
    multiply(sum.c[n], a_high, b_low[0], b_low[1]);
    multiply(sum.c[n], a_high, b_high[0], b_high[1]);
  }
}

/// M_ii of block `i`, a warp's work. Lane c has column c.
__device__ __forceinline__ void invert_diagonal(LowerShared& shared, int i) {
  const int column = lane_id();
  if (column < kBlock) {
    float m[kBlock];
#pragma unroll
    for (int r = 0; r < kBlock; ++r) {
      float sums[2] = {r == column ? 1.0f : 0.0f, 0.0f};
#pragma unroll
      for (int first = 0; first < r; first += 4) {
        const float4 a =
            *reinterpret_cast<const float4*>(&shared.a[kBlock * i + r][kBlock * i + first]);
        const float four[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int k = first; k < r && k < first + 4; ++k) sums[k % 2] -= four[k - first] * m[k];
      }
      m[r] = sums[0] + sums[1];
      shared.diagonal[i][r][column] = m[r];
    }
  }
}

/// Blocks (0 … kBlocks - 1, column) of M; those above the diagonal stay untouched. After all
/// diagonals.
__device__ __forceinline__ void invert_column(const LowerShared& shared, int column,
                                              Block (&m)[kBlocks]) {
  const int g = lane_id() / 4;
  const int j = lane_id() % 4;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    if (i == column) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          m[i].c[n][e] = shared.diagonal[i][g + 8 * (e / 2)][8 * n + 2 * j + e % 2];
      }
    } else if (i > column) {
      Block sum{};
#pragma unroll
      for (int k = 0; k < i; ++k)
        if (k >= column) multiply_split(sum, &shared.a[kBlock * i][kBlock * k], kChunk + 8, m[k]);
      Block product{};
      multiply_split(product, &shared.diagonal[i][0][0], 24, sum);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) m[i].c[n][e] = -product.c[n][e];
      }
    }
  }
}

}  // namespace attune::kernels::linear::sm90
