// The recurrence token by token, for spans of a few tokens (layer kernels): bound by reading and
// writing the state once.
//
// A block has one span, one value head and up to kMaxTiles tiles of kTileRows rows of the state,
// the next ones asked for before one is worked on; its rows stay in registers from the first token
// to the last.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/recurrent_history.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::linear::sm90 {

template <int KeyColumns, bool ByChannel, int Taps>
struct Recurrent {
  static constexpr int kThreads = kTokenThreads;
  static constexpr int kBlocks = KeyColumns == 256 ? 2 : Taps <= 4 ? 5 : 3;  ///< of an SM
  static constexpr int kRowsALane = 2;
  static constexpr int kRows = kTileRows;
  static constexpr int kMaxTiles = kTokenRows / kRows;
  static_assert(kRows == kThreads / kLanesARow * kRowsALane);
  static constexpr int kAhead = KeyColumns == 128 ? 2 : 1;  ///< tiles that are asked for in advance
  static constexpr int kQuads = KeyColumns / (4 * kLanesARow);  ///< 16-byte pieces a lane and row

  struct Shared {
    /// Tiles on their way: what a thread fetched it alone reads.
    float4 coming[kAhead][kRowsALane * kQuads][kThreads];
    Token<KeyColumns, ByChannel> token;
  };

  const DecodeParams& d;
  const Params& p;
  Shared& shared;
  StateRows at;
  int tiles;

  __device__ Recurrent(const DecodeParams& params, Shared& s)
      : d(params),
        p(params.p),
        shared(s),
        at{.span = span_at(params.spans + blockIdx.x),
           .place = static_cast<int>(blockIdx.x),
           .head = static_cast<int>(blockIdx.z),
           .key_head = static_cast<int>(blockIdx.z) / params.heads_a_key,
           .first_row = static_cast<int>(blockIdx.y) * kRows * params.tiles},
        tiles(min(params.tiles, (p.dv - at.first_row + kRows - 1) / kRows)) {}

  static __device__ __forceinline__ int row_of(int i) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    return warp * (kRows / (kThreads / 32)) + i * (32 / kLanesARow) + lane_id() / kLanesARow;
  }

  __device__ __forceinline__ float* state_row(int row) const {
    return p.state + at.span.slot * p.state_slot +
           (static_cast<std::int64_t>(at.head) * p.dv + row) * p.dk;
  }

  using State = StatePieces<KeyColumns, kRowsALane>;

  __device__ __forceinline__ float4 load_quad(const float* row, int c) const {
    if (d.wide_state)
      return c < p.dk ? *reinterpret_cast<const float4*>(row + c) : make_float4(0, 0, 0, 0);
    return make_float4(c < p.dk ? row[c] : 0.0f, c + 1 < p.dk ? row[c + 1] : 0.0f,
                       c + 2 < p.dk ? row[c + 2] : 0.0f, c + 3 < p.dk ? row[c + 3] : 0.0f);
  }

  [[nodiscard]] __device__ __forceinline__ bool has_whole_rows() const {
    return d.wide_state && p.dk == KeyColumns;
  }
  /// Rows beyond the state's are the last one's, and are not stored.
  [[nodiscard]] __device__ __forceinline__ const float* loaded_row(int tile, int i) const {
    return state_row(min(at.first_row + tile * kRows + row_of(i), p.dv - 1));
  }

  /// A group of copies, empty where there is nothing left to ask for.
  __device__ __forceinline__ void ask_for(int tile) const {
    if (tile < tiles && has_whole_rows()) {
#pragma unroll
      for (int i = 0; i < kRowsALane; ++i) {
        const float* row = loaded_row(tile, i);
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad)
          ptx::cp_async_16(&shared.coming[tile % kAhead][i * kQuads + quad][threadIdx.x],
                           row + state_column(quad));
      }
    }
    ptx::cp_async_commit();
  }

  __device__ __forceinline__ void take(State& state, int tile) const {
    ptx::cp_async_wait<kAhead - 1>();
    const bool whole = has_whole_rows();
#pragma unroll
    for (int i = 0; i < kRowsALane; ++i) {
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad)
        state[i][quad] = whole ? shared.coming[tile % kAhead][i * kQuads + quad][threadIdx.x]
                               : load_quad(loaded_row(tile, i), state_column(quad));
    }
  }

  __device__ __forceinline__ void store_quad(float* row, int c, float4 x) const {
    if (d.wide_state) {
      if (c < p.dk) *reinterpret_cast<float4*>(row + c) = x;
      return;
    }
    if (c < p.dk) row[c] = x.x;
    if (c + 1 < p.dk) row[c + 1] = x.y;
    if (c + 2 < p.dk) row[c + 2] = x.z;
    if (c + 3 < p.dk) row[c + 3] = x.w;
  }

  __device__ __forceinline__ void store_state(const State& state, int tile) const {
#pragma unroll
    for (int i = 0; i < kRowsALane; ++i) {
      const int row = at.first_row + tile * kRows + row_of(i);
      if (row >= p.dv) continue;
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad)
        store_quad(state_row(row), state_column(quad), state[i][quad]);
    }
  }
  template <bool Bf16>
  __device__ __forceinline__ TokenEntries<KeyColumns, Taps> make(std::int64_t t) {
    return make_token<KeyColumns, ByChannel, Taps, Bf16>(shared.token, p, at, kRows * d.tiles, t,
                                                         static_cast<int>(threadIdx.x));
  }

  __device__ __forceinline__ void step(State& state, std::int64_t t, int tile) {
    pass<KeyColumns, ByChannel, kRowsALane>(
        state, shared.token, factors_of(shared.token, p), p, at.head,
        [&](int i) { return tile * kRows + row_of(i); },
        [&](int i, float o) {
          const int column = at.first_row + tile * kRows + row_of(i);
          if (column < p.dv)
            write(p.o, p.bf16,
                  (at.span.first_token + t) * p.o_row + static_cast<std::int64_t>(at.head) * p.dv +
                      column,
                  o);
        });
  }

  __device__ void run() {
    if (at.span.slot < 0 || at.span.num_tokens == 0) return;
    HistoryMove<KeyColumns, Taps> history;
    for (int tile = 0; tile < kAhead; ++tile) ask_for(tile);
    for (int tile = 0; tile < tiles; ++tile) {
      State state;
      for (int t = 0; t < at.span.num_tokens; ++t) {
        if (tile == 0 || at.span.num_tokens > 1) {
          __syncthreads();  // the last step is done with what it shared
          const auto entries = p.bf16 ? make<true>(t) : make<false>(t);
          __syncthreads();
          // Tokens of longer spans are made again for every tile.
          if (t + 1 == at.span.num_tokens && (t == 0 || tile + 1 == tiles))
            history.begin(d, at, entries, kRows * d.tiles,
                          d.heads_a_key * static_cast<int>(gridDim.y),
                          static_cast<int>(threadIdx.x));
        }
        if (t == 0) take(state, tile);
        step(state, t, tile);
      }
      ask_for(tile + kAhead);
      store_state(state, tile);
    }
    history.end(d, static_cast<int>(threadIdx.x));
  }
};

/// Grid: spans, rows of the state, value heads.
template <int KeyColumns, bool ByChannel, int Taps>
__global__ void __launch_bounds__(Recurrent<KeyColumns, ByChannel, Taps>::kThreads,
                                  Recurrent<KeyColumns, ByChannel, Taps>::kBlocks)
    recurrent_kernel(const __grid_constant__ DecodeParams params) {
  using Kernel = Recurrent<KeyColumns, ByChannel, Taps>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<128>())).run();
}

}  // namespace attune::kernels::linear::sm90
