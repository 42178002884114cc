// Absorbed latent attention with the warp-wide products of sm_80, for pages of any size. A block of
// rows meets one stream of tiles of 32 keys, gathered by 16-byte copies two tiles deep; a tile in
// shared memory is keys and values.
//
//   all warps:  scores of a slice of (rows, keys, columns)  → shared memory
//   all warps:  softmax, a few threads a row                → probabilities and factors
//   warp w:     output columns c w … c w + c - 1 of all rows, an eighth
//
// A padded width serves every latent whose columns are a multiple of 8 and no more than its own:
// what lies beyond is zero in shared memory, and is not written.
#pragma once

#include "kernels/mla_decode/rows.cuh"
#include "kernels/mla_decode/sm80/policy.hpp"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::mla_decode::sm80 {

inline constexpr int kWarps = kThreads / 32;
inline constexpr int kStages = 2;
inline constexpr int kWeightStride = kKeys + 8;  ///< elements; 16 bytes of padding turn the banks

/// Columns of keys and of values that a kernel is made for.
template <int Qk, int Vo, bool Padded>
struct Width {
  static_assert(Qk % 64 == 0 && Vo % (8 * kWarps) == 0);
  static constexpr bool kPadded = Padded;
  static constexpr int kQk = Qk;
  static constexpr int kChunks = Qk * 2 / 16;      ///< 16-byte pieces of a key
  static constexpr int kKeyStride = Qk + 8;        ///< elements, padded like kWeightStride
  static constexpr int kColumns = Vo / kWarps;     ///< of the output, a warp
  static constexpr int kBlocks = Vo / kWarps / 8;  ///< likewise, of eight columns
};
using Exact = Width<kDimQk, kDimVo, false>;
using Wide = Width<kDimQk, kDimQk, true>;
using Narrow = Width<kNarrowDim, kNarrowDim, true>;

template <class Element, int Rows, class W>
struct Shared {
  static constexpr int kRowTiles = Rows / 16;
  /// How often the columns are cut so that every warp has scores to make.
  static constexpr int kCuts = Rows == kFewRows ? 2 : 1;
  static constexpr int kScoreStride = kKeys + 1;
  static constexpr int kKeyStride = W::kKeyStride;

  alignas(16) Element q[Rows * kKeyStride];
  alignas(16) Element k[kStages][kKeys * kKeyStride];
  alignas(16) Element p[Rows * kWeightStride];
  float scores[kCuts][Rows * kScoreStride];
  float factor[Rows];   ///< of what was summed before this tile
  float maximum[Rows];  ///< at the end
  float sum[Rows];
};
static_assert(sizeof(Shared<std::uint16_t, kFewRows, Wide>) <= 99 * 1024);
static_assert(sizeof(Shared<std::uint16_t, kManyRows, Wide>) <= 163 * 1024);

/// Whether a row of q or of keys has this piece.
template <class W>
__device__ __forceinline__ bool has_chunk(const Params& params, int chunk) {
  return !W::kPadded || 8 * chunk < params.dim_qk;
}

/// Where the keys of a warp's share of a tile lie: lane l < 4 knows key 4 (warp) + l.
struct KeyPlace {
  std::int64_t offset = 0;
  bool valid = false;
};

__device__ __forceinline__ KeyPlace find_key(const Params& params,
                                             const attention::LatentItem& item, int tile) {
  KeyPlace place;
  const int key = tile * kKeys + static_cast<int>(threadIdx.x) / 32 * (kKeys / kWarps) + lane();
  if (lane() >= kKeys / kWarps || tile >= item.tile_end || key >= item.kv_len) return place;
  const int entry = key / params.page_size;
  place.offset = begin_of_slot(params, params.kv_indices[item.entry_begin + entry]) +
                 (key - entry * params.page_size) * params.k_token_stride;
  place.valid = true;
  return place;
}

/// Starts this warp's share of a tile: keys behind the last become zero.
template <class W, class Element>
__device__ __forceinline__ void copy_keys(Element* to, const Params& params,
                                          const KeyPlace& place) {
  constexpr int kOfWarp = kKeys / kWarps;
  constexpr int kChunks = W::kChunks;
  static_assert(kOfWarp * kChunks % 32 == 0);
  const int first = static_cast<int>(threadIdx.x) / 32 * kOfWarp;
#pragma unroll
  for (int i = 0; i < kOfWarp * kChunks / 32; ++i) {
    const int at = i * 32 + lane();
    const int key = at / kChunks;
    const int chunk = at - key * kChunks;
    const std::int64_t offset = __shfl_sync(kAllLanes, place.offset, key);
    const bool valid = __shfl_sync(kAllLanes, place.valid ? 1 : 0, key) != 0;
    ptx::cp_async_16(to + (first + key) * W::kKeyStride + chunk * 8,
                     static_cast<const Element*>(params.k) + offset + chunk * 8,
                     valid && has_chunk<W>(params, chunk));
  }
}

template <class Element, int Rows, class W>
__device__ __forceinline__ void copy_queries(Shared<Element, Rows, W>& shared, const Params& params,
                                             const attention::LatentItem& item, int block) {
  constexpr int kChunks = W::kChunks;
  for (int at = static_cast<int>(threadIdx.x); at < Rows * kChunks; at += kThreads) {
    const int row = at / kChunks;
    const int chunk = at - row * kChunks;
    const RowPlace place = place_of(params, block, row, item.qo_len);
    const std::int64_t offset = place.exists
                                    ? (item.q_token + place.token) * params.q_token_stride +
                                          place.head * params.q_head_stride
                                    : 0;
    ptx::cp_async_16(shared.q + row * W::kKeyStride + chunk * 8,
                     static_cast<const Element*>(params.q) + offset + chunk * 8,
                     place.exists && has_chunk<W>(params, chunk));
  }
}

/// 64 rows: a warp makes 16 rows by 16 keys. 16 rows: 16 rows by 8 keys over half of the columns.
template <class Element, int Rows, class W>
__device__ __forceinline__ void make_scores(Shared<Element, Rows, W>& shared, const Element* keys) {
  using S = Shared<Element, Rows, W>;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  constexpr int kKeyStride = W::kKeyStride;
  constexpr int kSteps = W::kQk / 16 / S::kCuts;
  constexpr int kKeyTiles = Rows == kFewRows ? 1 : 2;  // of 8 keys
  const int row_tile = warp % S::kRowTiles;
  const int group = warp / S::kRowTiles % (kKeys / 8 / kKeyTiles);
  const int cut = warp / S::kRowTiles / (kKeys / 8 / kKeyTiles);
  const int first_key = group * 8 * kKeyTiles;
  const int first_column = cut * kSteps * 16;

  const Element* a_at =
      shared.q + (16 * row_tile + lane() % 16) * kKeyStride + first_column + lane() / 16 * 8;
  float c[kKeyTiles][4] = {};
  if constexpr (kKeyTiles == 2) {
    const Element* b_at = keys + (first_key + lane() / 16 * 8 + lane() % 8) * kKeyStride +
                          first_column + lane() / 8 % 2 * 8;
#pragma unroll 6
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t a[4];
      std::uint32_t b[4];
      ptx::ldmatrix_x4(a, ptx::shared_address(a_at + 16 * step));
      ptx::ldmatrix_x4(b, ptx::shared_address(b_at + 16 * step));
      ptx::mma_16x8x16<Element>(c[0], a, b[0], b[1]);
      ptx::mma_16x8x16<Element>(c[1], a, b[2], b[3]);
    }
  } else {
    const Element* b_at =
        keys + (first_key + lane() % 8) * kKeyStride + first_column + lane() / 8 * 8;
#pragma unroll 3
    for (int step = 0; step < kSteps; step += 2) {
      std::uint32_t low[4];
      std::uint32_t high[4];
      std::uint32_t b[4];
      ptx::ldmatrix_x4(low, ptx::shared_address(a_at + 16 * step));
      ptx::ldmatrix_x4(high, ptx::shared_address(a_at + 16 * step + 16));
      ptx::ldmatrix_x4(b, ptx::shared_address(b_at + 16 * step));
      ptx::mma_16x8x16<Element>(c[0], low, b[0], b[1]);
      ptx::mma_16x8x16<Element>(c[0], high, b[2], b[3]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kKeyTiles; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = 16 * row_tile + lane() / 4 + e / 2 * 8;
      const int key = first_key + 8 * tile + 2 * (lane() % 4) + e % 2;
      shared.scores[cut][row * S::kScoreStride + key] = c[tile][e];
    }
}

/// Running softmax of one row, the same in each of the neighbouring threads that share it.
struct RowState {
  float maximum = -INFINITY;  ///< times scale, base 2
  float sum = 0.0f;           ///< of this thread's keys
};

template <class Element, int Rows, class W>
__device__ __forceinline__ void take_softmax(Shared<Element, Rows, W>& shared, RowState& state,
                                             float scale, int visible, int tile) {
  using S = Shared<Element, Rows, W>;
  constexpr int kThreadsPerRow = kThreads / Rows;
  constexpr int kMine = kKeys / kThreadsPerRow;
  const int row = static_cast<int>(threadIdx.x) / kThreadsPerRow;
  const int first = static_cast<int>(threadIdx.x) % kThreadsPerRow * kMine;
  float s[kMine];
  float top = -INFINITY;
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    s[i] = 0.0f;
#pragma unroll
    for (int cut = 0; cut < S::kCuts; ++cut)
      s[i] += shared.scores[cut][row * S::kScoreStride + first + i];
    s[i] = tile * kKeys + first + i < visible ? s[i] * scale : -INFINITY;
    top = fmaxf(top, s[i]);
  }
#pragma unroll
  for (int mask = 1; mask < kThreadsPerRow; mask *= 2)
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, mask));
  const float next = fmaxf(state.maximum, top);
  const float factor = next == state.maximum ? 1.0f : ptx::exp2_approx(state.maximum - next);
  state.sum *= factor;
  state.maximum = next;
#pragma unroll
  for (int i = 0; i < kMine; i += 2) {
    const float low = ptx::exp2_approx(s[i] - finite(next));
    const float high = ptx::exp2_approx(s[i + 1] - finite(next));
    state.sum += low + high;
    *reinterpret_cast<std::uint32_t*>(shared.p + row * kWeightStride + first + i) =
        ptx::pack_pair<Element>(low, high);
  }
  if (first == 0) shared.factor[row] = factor;
}

/// This warp's columns of all rows: o[row tile][8-column block].
template <int Rows, class W>
using Output = float[Rows / 16][W::kBlocks][4];

template <class Element, int Rows, class W>
__device__ __forceinline__ void add_values(Shared<Element, Rows, W>& shared, Output<Rows, W>& o,
                                           const Element* keys) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int m = 0; m < Rows / 16; ++m) {
    const float factor[2] = {shared.factor[16 * m + lane() / 4],
                             shared.factor[16 * m + lane() / 4 + 8]};
    if (__any_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f) == 0) continue;
#pragma unroll
    for (int n = 0; n < W::kBlocks; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[m][n][e] *= factor[e / 2];
  }
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    std::uint32_t a[Rows / 16][4];
#pragma unroll
    for (int m = 0; m < Rows / 16; ++m)
      ptx::ldmatrix_x4(a[m], ptx::shared_address(shared.p + (16 * m + lane() % 16) * kWeightStride +
                                                 16 * step + lane() / 16 * 8));
#pragma unroll
    for (int n = 0; n < W::kBlocks; n += 2) {
      const bool pair = n + 1 < W::kBlocks;  // else both halves are the last block
      std::uint32_t b[4];
      ptx::ldmatrix_x4_trans(
          b, ptx::shared_address(keys + (16 * step + lane() % 16) * W::kKeyStride +
                                 warp * W::kColumns + 8 * n + (pair ? lane() / 16 * 8 : 0)));
#pragma unroll
      for (int m = 0; m < Rows / 16; ++m) {
        ptx::mma_16x8x16<Element>(o[m][n], a[m], b[0], b[1]);
        if (pair) ptx::mma_16x8x16<Element>(o[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <class Element, int Rows, class W>
__device__ __forceinline__ void write_rows(const Shared<Element, Rows, W>& shared,
                                           const Params& params, const attention::LatentItem& item,
                                           int block, int lane_of_group, const Output<Rows, W>& o) {
  const int first_column = static_cast<int>(threadIdx.x) / 32 * W::kColumns;
  const int column = first_column + 2 * (lane() % 4);
  const int dim_vo = W::kPadded ? params.dim_vo : kDimVo;
  const int blocks = W::kPadded ? (dim_vo - first_column) / 8 : W::kBlocks;  // that exist
  const std::int64_t place = std::int64_t{item.place} * params.lanes + lane_of_group;
#pragma unroll
  for (int m = 0; m < Rows / 16; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = 16 * m + lane() / 4 + 8 * h;
      const RowPlace at = place_of(params, block, row, item.qo_len);
      if (!at.exists) continue;
      const float maximum = shared.maximum[row];
      const float sum = shared.sum[row];
      const bool states_mine = threadIdx.x / 32 == 0 && lane() % 4 == 0;
      if (item.place >= 0) {
        const std::int64_t kept = place * params.block_rows + row;
        if (states_mine) {
          params.partial_maximum[kept] = maximum;
          params.partial_sum[kept] = sum;
        }
#pragma unroll
        for (int n = 0; n < W::kBlocks; ++n)
          if (n < blocks)
            *reinterpret_cast<float2*>(params.partial_o + kept * dim_vo + column + 8 * n) =
                make_float2(o[m][n][2 * h], o[m][n][2 * h + 1]);
        continue;
      }
      const bool empty = maximum == -INFINITY;
      const float inverse = inverse_of<true>(params, maximum, sum, at.head);
      const std::int64_t token = item.q_token + at.token;
      if (params.lse != nullptr && states_mine)
        params.lse[token * params.lse_token_stride + at.head * params.lse_head_stride] =
            empty ? -INFINITY : (maximum + log2f(sum)) * kLn2;
      auto* out = static_cast<Element*>(params.o) + token * params.o_token_stride +
                  at.head * params.o_head_stride + column;
#pragma unroll
      for (int n = 0; n < W::kBlocks; ++n)
        if (n < blocks)
          *reinterpret_cast<std::uint32_t*>(out + 8 * n) =
              ptx::pack_pair<Element>(o[m][n][2 * h] * inverse, o[m][n][2 * h + 1] * inverse);
    }
}

template <class Element, int Rows, class W>
__global__ void __launch_bounds__(kThreads, Rows == kFewRows ? 2 : 1)
    mla_gather(const __grid_constant__ Params params) {
  auto& shared = *reinterpret_cast<Shared<Element, Rows, W>*>(ptx::dynamic_shared<128>());
  constexpr int kThreadsPerRow = kThreads / Rows;
  ptx::dependency_release();
  ptx::dependency_wait();
  const Share share = share_of(params);
  const int my_row = static_cast<int>(threadIdx.x) / kThreadsPerRow;

  for (int i = share.begin; i < share.end; ++i) {
    attention::LatentItem item = item_of(params, share, i);
    if (params.lengths != nullptr) fit_to_list(params, kKeys, item);
    const int block = item.first_block + share.lane;
    if (block >= item.num_blocks) continue;
    const int visible =
        visible_keys(params, item, place_of(params, block, my_row, item.qo_len).token);
    RowState state;
    Output<Rows, W> o = {};

    KeyPlace next = find_key(params, item, item.tile_begin);
    if (item.tile_begin < item.tile_end) {
      copy_queries(shared, params, item, block);
      copy_keys<W>(shared.k[0], params, next);
      next = find_key(params, item, item.tile_begin + 1);
    }
    ptx::cp_async_commit();
    for (int tile = item.tile_begin; tile < item.tile_end; ++tile) {
      const int stage = (tile - item.tile_begin) % kStages;
      ptx::cp_async_wait<0>();
      __syncthreads();  // the tile is there; nobody reads the one before it any more
      if (tile + 1 < item.tile_end) {
        copy_keys<W>(shared.k[stage ^ 1], params, next);
        next = find_key(params, item, tile + 2);
      }
      ptx::cp_async_commit();
      make_scores(shared, shared.k[stage]);
      __syncthreads();
      take_softmax(shared, state, params.scale_log2, visible, tile);
      __syncthreads();
      add_values(shared, o, shared.k[stage]);
    }
#pragma unroll
    for (int mask = 1; mask < kThreadsPerRow; mask *= 2)
      state.sum += __shfl_xor_sync(kAllLanes, state.sum, mask);
    if (threadIdx.x % kThreadsPerRow == 0) {
      shared.maximum[my_row] = state.maximum;
      shared.sum[my_row] = state.sum;
    }
    __syncthreads();
    write_rows(shared, params, item, block, share.lane, o);
    __syncthreads();  // before the next item's queries and states
  }
}

}  // namespace attune::kernels::mla_decode::sm80
