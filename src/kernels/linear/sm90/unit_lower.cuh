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

struct LowerShared {
  // Two tiles of pairs' halves: below the diagonal A_ij, on it M_ii.
  Half high[kChunk * kChunk];
  Half low[kChunk * kChunk];
  // Rows are padded against bank conflicts.
  float a[kBlocks][kBlock][kBlock + 4];  ///< A_ii, strictly lower
  float m[kBlocks][kBlock][kBlock + 8];  ///< M_ii
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

/// A block as the right operand of a product.
struct RightBlock {
  std::uint32_t high[2][2];
  std::uint32_t low[2][2];
};

__device__ __forceinline__ RightBlock right_of(const Block& block) {
  RightBlock right;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const SplitPair s = split(block.c[n][2 * half], block.c[n][2 * half + 1]);
      right.high[n][half] = ptx::movmatrix_trans(s.high);
      right.low[n][half] = ptx::movmatrix_trans(s.low);
    }
  }
  return right;
}

/// sum += block (i, k) of the tiles times right.
__device__ __forceinline__ void multiply_split(Block& sum, const LowerShared& shared, int i, int k,
                                               const RightBlock& right) {
  std::uint32_t high[4];
  std::uint32_t low[4];
  load_a<kChunk>(high, shared.high, kBlock * i, kBlock * k);
  load_a<kChunk>(low, shared.low, kBlock * i, kBlock * k);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    multiply(sum.c[n], low, right.high[n][0], right.high[n][1]);
    multiply(sum.c[n], high, right.low[n][0], right.low[n][1]);
    multiply(sum.c[n], high, right.high[n][0], right.high[n][1]);
  }
}

/// A pair of A at `row` and `column` (even) of the chunk, in a block below the diagonal's.
__device__ __forceinline__ void put_lower(LowerShared& shared, int row, int column, float x,
                                          float y) {
  const SplitPair s = split(x, y);
  const int at = element_at<kChunk>(row, column);
  *reinterpret_cast<std::uint32_t*>(shared.high + at) = s.high;
  *reinterpret_cast<std::uint32_t*>(shared.low + at) = s.low;
}
/// In one on the diagonal, whose upper part is zeros.
__device__ __forceinline__ void put_diagonal(LowerShared& shared, unsigned row, unsigned column,
                                             float x, float y) {
  *reinterpret_cast<float2*>(&shared.a[row / kBlock][row % kBlock][column % kBlock]) =
      make_float2(x, y);
}

/// M_ii of block `i`, a warp's work. A lane has a column, as one of the other half has; nothing is
/// written before the last row is read, so that reads need not wait for writes.
__device__ __forceinline__ void invert_diagonal(LowerShared& shared, int i) {
  const int column = lane_id() % kBlock;
  float m[kBlock];
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    float sums[2] = {r == column ? 1.0f : 0.0f, 0.0f};
#pragma unroll
    for (int first = 0; first < r; first += 4) {
      const float4 a = *reinterpret_cast<const float4*>(&shared.a[i][r][first]);
      const float four[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int k = first; k < r && k < first + 4; ++k) sums[k % 2] -= four[k - first] * m[k];
    }
    m[r] = sums[0] + sums[1];
  }
  if (lane_id() < kBlock) {
#pragma unroll
    for (int r = 0; r < kBlock; ++r) shared.m[i][r][column] = m[r];
  }
  __syncwarp();
  // A lane half a row.
  const int row = lane_id() / 2;
  const int piece = lane_id() % 2;
  SplitPair pairs[4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float4 four = *reinterpret_cast<const float4*>(&shared.m[i][row][8 * piece + 4 * n]);
    pairs[2 * n] = split(four.x, four.y);
    pairs[2 * n + 1] = split(four.z, four.w);
  }
  const int at = piece_at<kChunk>(kBlock * i + row, 2 * i + piece);
  *reinterpret_cast<uint4*>(shared.high + at) =
      make_uint4(pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high);
  *reinterpret_cast<uint4*>(shared.low + at) =
      make_uint4(pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low);
}

/// Blocks (0 … kBlocks - 1, column) of M; those above the diagonal are zeros. After all diagonals.
/// Everything is set, though nobody reads those: what is set under a condition alone the compiler
/// keeps in registers all around a caller's loop.
__device__ __forceinline__ void invert_column(const LowerShared& shared, int column,
                                              Block (&m)[kBlocks]) {
  const int g = lane_id() / 4;
  const int j = lane_id() % 4;
  RightBlock right[kBlocks] = {};
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    m[i] = {};
    if (i < column) continue;
    if (i == column) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float2 pair =
              *reinterpret_cast<const float2*>(&shared.m[i][g + 8 * h][8 * n + 2 * j]);
          m[i].c[n][2 * h] = pair.x;
          m[i].c[n][2 * h + 1] = pair.y;
        }
      }
    } else {
      Block sum{};
#pragma unroll
      for (int k = 0; k < i; ++k)
        if (k >= column) multiply_split(sum, shared, i, k, right[k]);
      Block product{};
      multiply_split(product, shared, i, i, right_of(sum));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) m[i].c[n][e] = -product.c[n][e];
      }
    }
    if (i + 1 < kBlocks) right[i] = right_of(m[i]);
  }
}

}  // namespace attune::kernels::linear::sm90
