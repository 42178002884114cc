// What the scans have in common (layer kernels): who works on what, how rows come into shared
// memory, and the products of a state kept transposed in a warpgroup's accumulators.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/linear/sm90/gates.cuh"
#include "kernels/linear/sm90/ring.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::linear::sm90 {

/// For one head and 64 value columns a warpgroup: columns of the state never meet. S^T, X^T and
/// D^T, as value columns by keys or tokens and packed to bf16, are in registers what the next
/// product wants as its left operand.
template <int KeyColumns, int Groups>
struct ScanParts {
  static constexpr int kGroupThreads = 128;
  static constexpr int kPanels = KeyColumns / 64;  ///< tiles of 64 columns side by side
  static constexpr int kHalves = KeyColumns / 128;
  static constexpr int kTile = kChunk * 64;  ///< elements

  template <int Tiles>
  struct alignas(1024) Panels {
    Half x[Tiles * kTile];
  };

  template <int Stages>
  using Place = RingPlace<Stages>;

  const PromptParams& d;
  const Params& p;
  Sequence sequence;
  int head;
  int key_head;
  int first_column;  ///< of the block
  int thread;        ///< of the warpgroup

  __device__ explicit ScanParts(const PromptParams& params)
      : d(params), p(params.p), thread(static_cast<int>(threadIdx.x) % kGroupThreads) {
    const int slices = d.value_columns / (64 * Groups);
    const int work = static_cast<int>(blockIdx.x);
    sequence = d.sequences[work / slices / p.num_v_heads];
    head = work / slices % p.num_v_heads;
    key_head = head / (p.num_v_heads / d.key_heads);
    first_column = work % slices * 64 * Groups;
  }

  [[nodiscard]] __device__ __forceinline__ int count_of(int c) const {
    return min(kChunk, sequence.num_tokens - c * kChunk);
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t chunk_head(int c) const {
    return static_cast<std::int64_t>(sequence.first_chunk + c) * p.num_v_heads + head;
  }

  // ---- rows

  /// Tiles side by side. A thread's rows are multiples of 8 apart, so that its piece lies at the
  /// same place of each.
  template <int Tiles>
  __device__ __forceinline__ void fetch_panels(Half* to, const Half* from, std::int64_t stride,
                                               int count) const {
    static_assert(Tiles <= 2);
    constexpr int kPieces = 8 * Tiles;
    constexpr int kRows = kGroupThreads / kPieces;
    const int row = thread / kPieces;
    const int piece = thread % kPieces;
    to += piece / 8 * kTile + piece_at<64>(row, piece % 8);
    from += row * stride + 8 * piece;
#pragma unroll
    for (int first = 0; first < kChunk; first += kRows) {
      ptx::cp_async_16(to + first * 64, from, first + row < count);
      from += kRows * stride;
    }
  }

  __device__ __forceinline__ void fetch_keys(Half* to, const RowsOf& rows, std::int64_t token,
                                             int count) const {
    const Half* from = rows.data + token * rows.token_stride + key_head * rows.head_stride;
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
      fetch_panels<2>(to + 2 * half * kTile, from + 128 * half, rows.token_stride, count);
  }

  __device__ __forceinline__ void fetch_values(Half* to, std::int64_t token, int count) const {
    fetch_panels<Groups>(
        to, d.v.data + token * d.v.token_stride + head * d.v.head_stride + first_column,
        d.v.token_stride, count);
  }

  // ---- products

  /// What a descriptor of a tile over keys gains with 16 of them, in its units.
  static __device__ __forceinline__ std::uint64_t key_step(int ks) {
    return static_cast<std::uint64_t>((ks / 4 * kTile * 2 + ks % 4 * 32) >> 4);
  }

  /// A 64 x 64 accumulator: value columns by tokens.
  using Tokens = float[kChunk / 2];
  /// Its left operand's form, by 16 tokens.
  using Packed = std::uint32_t[kChunk / 16][4];
  using State = float[kHalves][64];
  using PackedHalf = std::uint32_t[8][4];  ///< of 128 keys

  /// sum (+)= left (rows of tile)^T over 128 keys, of these the 16-key steps From … To - 1.
  template <int From = 0, int To = 8>
  static __device__ __forceinline__ void over_keys(Tokens& sum, const PackedHalf& left,
                                                   const Half* tile, bool accumulate) {
    const std::uint64_t right = ptx::wgmma_descriptor(tile);
#pragma unroll
    for (int ks = From; ks < To; ++ks)
      ptx::wgmma_rs<__nv_bfloat16, kChunk, ptx::Major::k>(sum, left[ks], right + key_step(ks),
                                                          accumulate || ks > From);
    ptx::wgmma_commit();
  }
  /// state += left keys.
  static __device__ __forceinline__ void into_state(State& state, const Packed& left,
                                                    const Half* keys) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const std::uint64_t right =
          ptx::wgmma_descriptor(keys + 2 * half * kTile, kTile * sizeof(Half));
#pragma unroll
      for (int kb = 0; kb < kChunk / 16; ++kb)
        ptx::wgmma_rs<__nv_bfloat16, 128, ptx::Major::mn>(
            state[half], left[kb], right + static_cast<std::uint64_t>(2048 * kb >> 4), true);
    }
    ptx::wgmma_commit();
  }

  // ---- registers: a thread's value columns are `column` and 8 more, its tokens or keys 8 n + 2 j
  // and the next

  __device__ __forceinline__ int group() const {
    return static_cast<int>(threadIdx.x) / kGroupThreads - 1;
  }
  __device__ __forceinline__ int column() const {
    return first_column + 64 * group() + thread / 32 * 16 + thread % 32 / 4;
  }

  static __device__ __forceinline__ void pack_half(PackedHalf& packed, const float (&half)[64]) {
#pragma unroll
    for (int ks = 0; ks < 8; ++ks) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int at = 8 * ks + 4 * (r / 2) + 2 * (r % 2);
        packed[ks][r] = pack(half[at], half[at + 1]);
      }
    }
  }

  /// V^T of a tile of the thread's group.
  __device__ __forceinline__ void load_values(Packed& values, const Half* v) const {
#pragma unroll
    for (int kb = 0; kb < kChunk / 16; ++kb)
      load_a_trans<64>(values[kb], v + group() * kTile, thread / 32 * 16, 16 * kb);
  }

  [[nodiscard]] __device__ __forceinline__ float* own_state() const {
    return p.state + sequence.slot * p.state_slot + static_cast<std::int64_t>(head) * p.dv * p.dk;
  }
  /// Calls visit(half, i, place, whether it is there) for the places of a state that begins at
  /// base.
  template <class Visit>
  __device__ __forceinline__ void each_of_state(float* base, Visit visit) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < 64; ++i) {
        const int row = column() + i / 2 % 2 * 8;
        const int key = 128 * half + i / 4 * 8 + 2 * (thread % 4) + i % 2;
        visit(half, i, base + static_cast<std::int64_t>(row) * p.dk + key,
              row < p.dv && key < p.dk);
      }
    }
  }

  static __device__ __forceinline__ void pin(State& state) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) ptx::wgmma_pin(state[half]);
  }

  /// Columns from `first` on of a token's output.
  __device__ __forceinline__ void write_eight(Half* to, int first, const uint4& eight) const {
    if (d.wide_o && first + 8 <= p.dv) {
      *reinterpret_cast<uint4*>(to) = eight;
      return;
    }
    const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (first + e < p.dv) to[e] = static_cast<Half>(words[e / 2] >> (e % 2 * 16));
  }
};

}  // namespace attune::kernels::linear::sm90
