// Keys stand on the M side of the product and (token, head) pairs on the N side. A lane's sixteen
// bytes of a row are eight adjacent dims, of keys and queries alike: which of a product's sixteen
// places a dim takes is free, so keys come from memory into fragments, 64 bytes of a row by four
// lanes, and nothing is exchanged. A block's keys are dealt to the warps sixteen at a time; what is
// largest stays in registers until the block ends.
#include "kernels/block_scores/sm80/launch.hpp"

#include <cmath>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::block_scores::sm80 {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16;       ///< keys of a product
constexpr int kPieceDims = 32;  ///< what four lanes read of a row at a time: two products
constexpr int kPieces = kMostDim / kPieceDims;
/// Sixteens of keys that a warp reads before it looks at one, and that share what it reads of
/// queries.
constexpr int kTogether = 2;
constexpr int kStep = kRows * kWarps;
constexpr unsigned kAllLanes = 0xffffffffu;

/// Sixteen bytes of a row.
using Piece = std::uint32_t[4];

/// Dims [first, first + 8) of a row, zero behind its end.
template <bool Aligned>
__device__ __forceinline__ void read_piece(Piece& piece, const std::uint16_t* row, int first,
                                           int dims) {
  if constexpr (Aligned) {
    uint4 words = make_uint4(0, 0, 0, 0);
    if (first < dims) words = *reinterpret_cast<const uint4*>(row + first);
    piece[0] = words.x;
    piece[1] = words.y;
    piece[2] = words.z;
    piece[3] = words.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int d = first + 2 * i;
      const std::uint32_t low = d < dims ? row[d] : 0u;
      const std::uint32_t high = d + 1 < dims ? row[d + 1] : 0u;
      piece[i] = low | high << 16;
    }
  }
}

template <int Tiles>
struct Shared {
  static constexpr int kColumns = 8 * Tiles;
  /// So far apart that two rows meet no bank twice.
  static constexpr int kRowWords = kMostDim / 2 + 16;
  std::uint32_t queries[kColumns][kRowWords];
  int visible[kColumns];  ///< by the column's token
  float best[2][kWarps][kColumns];
};

/// A group's queries, and what its columns are.
template <class Element, int Tiles, bool Aligned>
class Columns {
 public:
  __device__ Columns(Shared<Tiles>& shared, const Params& p) : shared_(shared), p_(p) {}

  /// All threads, between barriers.
  __device__ void load(const Group& group) {
    num_ = group.num_tokens * p_.num_heads;
    constexpr int kRowPieces = kMostDim / 8;
    for (int at = static_cast<int>(threadIdx.x); at < 8 * Tiles * kRowPieces; at += kThreads) {
      const int column = at / kRowPieces;
      const int first = at % kRowPieces * 8;
      const int token = column / p_.num_heads;
      const int head = column - token * p_.num_heads;
      Piece piece = {};
      if (column < num_)
        read_piece<Aligned>(piece,
                            static_cast<const std::uint16_t*>(p_.q) +
                                (group.first_token + token) * p_.q_token_stride +
                                head * p_.q_head_stride,
                            first, p_.head_dim);
#pragma unroll
      for (int i = 0; i < 4; ++i) shared_.queries[column][first / 2 + i] = piece[i];
    }
    for (int column = static_cast<int>(threadIdx.x); column < 8 * Tiles; column += kThreads)
      shared_.visible[column] =
          column < num_ ? p_.visible[group.first_token + column / p_.num_heads] : 0;
    first_visible_ = p_.visible[group.first_token];
  }

  [[nodiscard]] __device__ int count() const { return num_; }
  /// Keys that every one of them sees.
  [[nodiscard]] __device__ int all_see() const { return first_visible_; }
  /// Of this lane's columns in a product's result.
  [[nodiscard]] __device__ int visible(int n, int e) const {
    return shared_.visible[8 * n + 2 * (static_cast<int>(threadIdx.x) % 4) + e];
  }

  /// Of two products.
  __device__ __forceinline__ uint4 operand(int n, int piece) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return *reinterpret_cast<const uint4*>(
        &shared_.queries[8 * n + lane / 4][16 * piece + 4 * (lane % 4)]);
  }

 private:
  Shared<Tiles>& shared_;
  const Params& p_;
  int num_ = 0;
  int first_visible_ = 0;
};

/// Two rows of sixteen keys: lane / 4 and eight behind it.
struct KeyRows {
  Piece low[kPieces];
  Piece high[kPieces];
};

template <bool Aligned>
__device__ __forceinline__ void read_keys(KeyRows& rows, const Params& p, const std::int32_t* pages,
                                          int first, int end) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first + lane / 4 + 8 * half;
    const bool exists = key < end;
    const std::uint16_t* row = nullptr;
    if (exists) {
      const auto entry = static_cast<int>(base::divide(static_cast<std::uint32_t>(key), p.page));
      row = static_cast<const std::uint16_t*>(p.keys) + pages[entry] * p.page_stride +
            (key - entry * static_cast<int>(p.page.divisor)) * p.token_stride;
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      read_piece<Aligned>(half == 0 ? rows.low[i] : rows.high[i], row,
                          kPieceDims * i + 8 * (lane % 4), exists ? p.head_dim : 0);
  }
}

/// Sixteens of keys, kStep keys from one to the next, meet all columns.
template <class Element, int Tiles, bool Aligned>
__device__ __forceinline__ void take(const KeyRows (&rows)[kTogether], const Params& p,
                                     const Columns<Element, Tiles, Aligned>& columns, int first,
                                     int end, float (&best)[Tiles][2]) {
  const int key = first + static_cast<int>(threadIdx.x) % 32 / 4;
  const bool whole = first + kStep * (kTogether - 1) + kRows <= min(end, columns.all_see());
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
    float sums[kTogether][4] = {};
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (kPieceDims * i >= p.head_dim) break;
      const uint4 b = columns.operand(n, i);
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        const Piece& low = rows[t].low[i];
        const Piece& high = rows[t].high[i];
        const std::uint32_t first_half[4] = {low[0], high[0], low[1], high[1]};
        const std::uint32_t second_half[4] = {low[2], high[2], low[3], high[3]};
        ptx::mma_16x8x16<Element>(sums[t], first_half, b.x, b.y);
        ptx::mma_16x8x16<Element>(sums[t], second_half, b.z, b.w);
      }
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool seen =
            whole || key + kStep * t + 8 * (e / 2) < min(end, columns.visible(n, e % 2));
        // Of a NaN and a number the number is the larger.
        best[n][e % 2] = fmaxf(best[n][e % 2], seen ? sums[t][e] : -INFINITY);
      }
  }
}

template <class Element, int Tiles, bool Aligned>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    block_scores(const __grid_constant__ Params p) {
  auto& shared = *reinterpret_cast<Shared<Tiles>*>(ptx::dynamic_shared<128>());
  ptx::dependency_release();
  Share share = p.shares[blockIdx.x];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ptx::dependency_wait();
  int parity = 0;
  for (int group_id = share.group, block = share.tile; share.tiles > 0; ++group_id, block = 0) {
    const Group group = p.groups[group_id];
    const std::int32_t* const pages = p.kv_indices + group.entry_begin;
    Columns<Element, Tiles, Aligned> columns(shared, p);
    __syncthreads();  // the group before has been met
    columns.load(group);
    __syncthreads();
    for (; share.tiles > 0 && block * p.block_size < group.keys; ++block, --share.tiles) {
      const int begin = block * p.block_size;
      const int end = min(begin + p.block_size, group.keys);
      float best[Tiles][2];
#pragma unroll
      for (int n = 0; n < Tiles; ++n) best[n][0] = best[n][1] = -INFINITY;
      for (int first = begin + kRows * warp; first < end; first += kStep * kTogether) {
        KeyRows rows[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
          read_keys<Aligned>(rows[i], p, pages, first + kStep * i, end);
        take(rows, p, columns, first, end, best);
      }
#pragma unroll
      for (int n = 0; n < Tiles; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
#pragma unroll
          for (int step = 4; step < 32; step *= 2)
            best[n][e] = fmaxf(best[n][e], __shfl_xor_sync(kAllLanes, best[n][e], step));
          if (lane < 4) shared.best[parity][warp][8 * n + 2 * lane + e] = best[n][e];
        }
      __syncthreads();
      for (int c = static_cast<int>(threadIdx.x); c < columns.count(); c += kThreads) {
        float most = shared.best[parity][0][c];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) most = fmaxf(most, shared.best[parity][w][c]);
        const std::int64_t first = std::int64_t{group.first_token - p.first_token} * p.num_heads;
        p.scores[(first + c) * p.stride + block] = most;
      }
      parity ^= 1;
    }
  }
}

template <class Element, int Tiles, bool Aligned>
Instance make(DType dtype) {
  return {.dtype = dtype,
          .columns = 8 * Tiles,
          .aligned = Aligned,
          .kernel = ptx::kernel_handle(&block_scores<Element, Tiles, Aligned>)};
}

template <class Element>
Instance of_columns(DType dtype, std::int64_t columns, bool aligned) {
  if (!aligned) return make<Element, kMostColumns / 8, false>(dtype);
  if (columns <= 8) return make<Element, 1, true>(dtype);
  if (columns <= 16) return make<Element, 2, true>(dtype);
  return make<Element, kMostColumns / 8, true>(dtype);
}

int shared_bytes(const Instance& instance) {
  if (instance.columns == 8) return sizeof(Shared<1>);
  if (instance.columns == 16) return sizeof(Shared<2>);
  return sizeof(Shared<kMostColumns / 8>);
}

}  // namespace

Instance instance_of(DType dtype, int num_heads, int head_dim, std::int64_t tokens) {
  const std::int64_t columns = tokens * num_heads;
  const bool aligned = head_dim % 8 == 0;
  return dtype == DType::f16 ? of_columns<__half>(dtype, columns, aligned)
                             : of_columns<__nv_bfloat16>(dtype, columns, aligned);
}

Status launch(const Instance& instance, const Params& params, int blocks, cudaStream_t stream) {
  Params copy = params;
  void* arguments[] = {&copy};
  return base::cuda::call_status(base::cuda::start({.kernel = instance.kernel,
                                                    .blocks = blocks,
                                                    .threads = kThreads,
                                                    .shared_bytes = shared_bytes(instance)},
                                                   arguments, true, stream),
                                 "block_scores");
}

}  // namespace attune::kernels::block_scores::sm80
