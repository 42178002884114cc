// bf16 tiles in shared memory and the fragments of warp-wide products read from them (layer
// kernels). A tile's rows are cut into 16-byte pieces; a piece lies where the row's number, by
// exclusive or, says, so that the eight rows of an 8 x 8 matrix lie in different banks.
#pragma once

#include <cuda_bf16.h>

#include <bit>
#include <cstdint>

#include "kernels/linear/sm90/params.hpp"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/mma.cuh"

namespace attune::kernels::linear::sm90 {

/// Element offset of `piece` (8 columns) of `row` in a tile of `Columns` columns. Of unsigned
/// numbers: quotients of signed ones are several instructions.
template <int Columns>
__device__ __forceinline__ int piece_at(unsigned row, unsigned piece) {
  static_assert(Columns == 32 || Columns % 64 == 0);
  const unsigned turn = Columns == 32 ? (row / 2) % 4 : row % 8;
  return static_cast<int>(row * Columns + (piece ^ turn) * 8);
}

template <int Columns>
__device__ __forceinline__ int element_at(unsigned row, unsigned column) {
  return piece_at<Columns>(row, column / 8) + static_cast<int>(column % 8);
}

inline constexpr int kPanel = kChunk * 64;  ///< elements of a tile of 64 columns

/// In tiles of 64 columns side by side, of `Rows` rows each.
template <int Rows = kChunk>
__device__ __forceinline__ int panel_element_at(unsigned row, unsigned column) {
  return static_cast<int>(column / 64 * Rows * 64) + element_at<64>(row, column % 64);
}

/// In a matrix of Pairs: where a panel would begin had it all rows.
__device__ __forceinline__ int triangle_panel(int block) {
  return block * (kChunk - kBlock) * kBlock - block * (block - 1) * kBlock * kBlock / 2;
}
__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x % 32); }

/// A lane's pair of an 8 x 8 block at row 0, columns 8 n: rows of a panel are 32 bytes, and four of
/// them change pieces with the next four.
__device__ __forceinline__ int triangle_pair(int n) {
  const int row = lane_id() / 4;
  return row * kBlock + ((n % 2) ^ (row / 4)) * 8 + 2 * (lane_id() % 4);
}

/// A[m, k] of rows m0 …, columns k0 … of a tile.
template <int Columns>
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const Half* tile, int m0, int k0) {
  const int l = lane_id();
  ptx::ldmatrix_x4(a, ptx::shared_address(tile + piece_at<Columns>(m0 + l % 16, k0 / 8 + l / 16)));
}

/// A[m, k] = tile[k, m].
template <int Columns>
__device__ __forceinline__ void load_a_trans(std::uint32_t (&a)[4], const Half* tile, int m0,
                                             int k0) {
  const int l = lane_id();
  ptx::ldmatrix_x4_trans(a, ptx::shared_address(tile + piece_at<Columns>(k0 + l % 8 + 8 * (l / 16),
                                                                         m0 / 8 + l / 8 % 2)));
}

/// B[k, n] = tile[n, k], for columns n0 … n0 + 15: b[0], b[1] of the first eight, b[2], b[3] of the
/// others.
template <int Columns>
__device__ __forceinline__ void load_b(std::uint32_t (&b)[4], const Half* tile, int n0, int k0) {
  const int l = lane_id();
  ptx::ldmatrix_x4(b, ptx::shared_address(
                          tile + piece_at<Columns>(n0 + l % 8 + 8 * (l / 16), k0 / 8 + l / 8 % 2)));
}

__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  ptx::mma_16x8x16<__nv_bfloat16>(c, a, b0, b1);
}

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  return ptx::pack_pair<__nv_bfloat16>(low, high);
}
__device__ __forceinline__ float low_of(std::uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
__device__ __forceinline__ float high_of(std::uint32_t pair) {
  return std::bit_cast<float>(pair & 0xffff0000u);
}
__device__ __forceinline__ float widen(Half x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}
__device__ __forceinline__ Half narrow(float x) {
  return static_cast<Half>(pack(x, 0.0f) & 0xffffu);
}

/// A pair of neighbouring columns (the first even) of a tile.
template <int Columns>
__device__ __forceinline__ void put_pair(Half* tile, int row, int column, float low, float high) {
  *reinterpret_cast<std::uint32_t*>(tile + element_at<Columns>(row, column)) = pack(low, high);
}

/// Asks for kChunk rows of `Columns` columns, `Threads` threads; rows from `count` on become zero.
/// A thread's rows are multiples of 8 apart, so that its piece lies at the same place of each.
template <int Columns, int Threads>
__device__ __forceinline__ void fetch_rows(Half* tile, const Half* from, std::int64_t stride,
                                           int count, int thread) {
  constexpr int kPieces = Columns / 8;
  constexpr int kRows = Threads / kPieces;
  static_assert(kRows % 8 == 0);
  const int row = thread / kPieces;
  const int piece = thread % kPieces;
  tile += piece_at<Columns>(row, piece);
  from += row * stride + 8 * piece;
#pragma unroll
  for (int first = 0; first < kChunk; first += kRows) {
    ptx::cp_async_16(tile + first * Columns, from, first + row < count);
    from += kRows * stride;
  }
}

}  // namespace attune::kernels::linear::sm90
