// One token a span, where many states are whole rows (layer kernels): an SM each, blocks that stay
// and never stop reading. What recurrent.cuh does in turn is done at once here, to the same bits:
// one thread has tiles of states copied in and out again by the copy engine, kStages under way; two
// warpgroups make tokens ahead of them; eight warps pass the state by its token where it lies.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/recurrent_history.cuh"
#include "kernels/linear/sm90/ring.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::linear::sm90 {

template <bool ByChannel, int Taps>
struct StateStream {
  static constexpr int kKeys = 128;
  static constexpr int kStages = 12;
  static constexpr int kTokens = 4;
  static constexpr int kMakers = 2;
  static constexpr int kPassWarps = 8;
  static constexpr int kRowsALane = kTileRows * kLanesARow / (32 * kPassWarps);
  static constexpr int kThreads = 32 + kMakers * kTokenThreads + 32 * kPassWarps;
  static constexpr std::uint32_t kTileBytes = kTileRows * kKeys * sizeof(float);

  struct alignas(128) Shared {
    float tiles[kStages][kTileRows][kKeys];
    Token<kKeys, ByChannel> tokens[kTokens];
    float* home[kStages];  ///< of the copying thread: where a tile is from
    ptx::Mbarrier full[kStages];
    ptx::Mbarrier passed[kStages];
    ptx::Mbarrier token_full[kTokens];
    ptx::Mbarrier token_empty[kTokens];
  };
  static_assert(sizeof(Shared) <= 227 * 1024);

  const DecodeParams& d;
  const Params& p;
  Shared& shared;
  int heads_of_rows;  ///< parts of a span: value heads by up to kTokenRows rows
  int parts;          ///< of a value head
  int items;

  __device__ StateStream(const DecodeParams& params, Shared& s)
      : d(params),
        p(params.p),
        shared(s),
        parts((params.p.dv + kTokenRows - 1) / kTokenRows),
        items(0) {
    heads_of_rows = p.num_v_heads * parts;
    items = d.num_spans * heads_of_rows;
  }

  /// Calls visit(rows) for what the block works on, in its order; every role walks the same way, a
  /// span ahead of itself.
  template <class Visit>
  __device__ __forceinline__ void each_item(Visit visit) const {
    int item = static_cast<int>(blockIdx.x);
    if (item >= items) return;
    Span next = span_at(d.spans + item / heads_of_rows);
    while (item < items) {
      const Span span = next;
      const int place = item / heads_of_rows;
      const int part = item % heads_of_rows;
      item += static_cast<int>(gridDim.x);
      if (item < items) next = span_at(d.spans + item / heads_of_rows);
      if (span.slot < 0 || span.num_tokens == 0) continue;
      const int head = part / parts;
      visit(StateRows{.span = span,
                      .place = place,
                      .head = head,
                      .key_head = head / d.heads_a_key,
                      .first_row = part % parts * kTokenRows});
    }
  }
  [[nodiscard]] __device__ __forceinline__ int tiles_of(const StateRows& at) const {
    return min(kTokenRows, p.dv - at.first_row) / kTileRows;
  }

  // ---- a thread that copies

  __device__ __forceinline__ void send_back(const RingPlace<kStages>& place) const {
    ptx::mbarrier_wait(shared.passed[place.stage], place.parity);
    ptx::bulk_store(shared.home[place.stage], shared.tiles[place.stage], kTileBytes);
    ptx::bulk_commit();
  }

  /// A tile is asked for once the one before it in the stage has been read by its store; all but
  /// the newest store have been.
  __device__ void copy() const {
    RingPlace<kStages> in;
    RingPlace<kStages> out;
    int under_way = 0;
    each_item([&](const StateRows& at) {
      float* from = p.state + at.span.slot * p.state_slot +
                    (static_cast<std::int64_t>(at.head) * p.dv + at.first_row) * kKeys;
      for (int tile = 0; tile < tiles_of(at); ++tile) {
        if (under_way == kStages) {
          send_back(out);
          out.advance();
          ptx::bulk_wait_read<0>();
          --under_way;
        }
        ptx::mbarrier_arrive_expect(shared.full[in.stage], kTileBytes);
        ptx::bulk_load(shared.tiles[in.stage], from, kTileBytes, shared.full[in.stage]);
        shared.home[in.stage] = from;
        from += kTileRows * kKeys;
        in.advance();
        ++under_way;
      }
    });
    for (; under_way > 0; --under_way) {
      send_back(out);
      out.advance();
    }
    ptx::bulk_wait_read<0>();
  }

  // ---- warps that make tokens

  /// Warpgroups in turn.
  __device__ void make_tokens(int maker, int thread) const {
    RingPlace<kTokens> place{.parity = 1};
    HistoryMove<kKeys, Taps> history;
    int turn = 0;
    each_item([&](const StateRows& at) {
      if (turn++ % kMakers != maker) {
        place.advance();
        return;
      }
      ptx::mbarrier_wait(shared.token_empty[place.stage], place.parity);
      Token<kKeys, ByChannel>& to = shared.tokens[place.stage];
      const int rows = min(kTokenRows, p.dv - at.first_row);
      const auto entries =
          p.bf16 ? make_token<kKeys, ByChannel, Taps, true>(to, p, at, rows, 0, thread)
                 : make_token<kKeys, ByChannel, Taps, false>(to, p, at, rows, 0, thread);
      arrive(shared.token_full[place.stage]);
      history.end(d, thread);
      history.begin(d, at, entries, rows, d.heads_a_key * parts, thread);
      place.advance();
    });
    history.end(d, thread);
  }

  // ---- warps that pass the state by its token

  static __device__ __forceinline__ void arrive(ptx::Mbarrier& barrier) {
    __syncwarp();
    if (lane_id() == 0) ptx::mbarrier_arrive(barrier);
  }

  __device__ void pass_tiles(int thread) const {
    constexpr int kQuads = kKeys / (4 * kLanesARow);
    RingPlace<kStages> stage;
    RingPlace<kTokens> place;
    const auto row_of = [&](int i) {
      return i * (32 / kLanesARow) * kPassWarps + thread / kLanesARow;
    };
    each_item([&](const StateRows& at) {
      const Token<kKeys, ByChannel>& token = shared.tokens[place.stage];
      ptx::mbarrier_wait(shared.token_full[place.stage], place.parity);
      const TokenFactors factors = factors_of(token, p);
      const std::int64_t out =
          at.span.first_token * p.o_row + static_cast<std::int64_t>(at.head) * p.dv + at.first_row;
      for (int tile = 0; tile < tiles_of(at); ++tile) {
        ptx::mbarrier_wait(shared.full[stage.stage], stage.parity);
        StatePieces<kKeys, kRowsALane> state;
        const auto piece = [&](int i, int quad) -> float4& {
          return *reinterpret_cast<float4*>(
              &shared.tiles[stage.stage][row_of(i)][state_column(quad)]);
        };
#pragma unroll
        for (int i = 0; i < kRowsALane; ++i) {
#pragma unroll
          for (int quad = 0; quad < kQuads; ++quad) state[i][quad] = piece(i, quad);
        }
        pass<kKeys, ByChannel, kRowsALane>(
            state, token, factors, p, at.head, [&](int i) { return tile * kTileRows + row_of(i); },
            [&](int i, float o) { write(p.o, p.bf16, out + tile * kTileRows + row_of(i), o); });
#pragma unroll
        for (int i = 0; i < kRowsALane; ++i) {
#pragma unroll
          for (int quad = 0; quad < kQuads; ++quad) piece(i, quad) = state[i][quad];
        }
        ptx::fence_proxy_async();
        arrive(shared.passed[stage.stage]);
        stage.advance();
      }
      arrive(shared.token_empty[place.stage]);
      place.advance();
    });
  }

  __device__ void run() {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread == 0) {
      for (int i = 0; i < kStages; ++i) {
        ptx::mbarrier_init(shared.full[i], 1);
        ptx::mbarrier_init(shared.passed[i], kPassWarps);
      }
      for (int i = 0; i < kTokens; ++i) {
        ptx::mbarrier_init(shared.token_full[i], kTokenThreads / 32);
        ptx::mbarrier_init(shared.token_empty[i], kPassWarps);
      }
      ptx::mbarrier_init_fence();
    }
    __syncthreads();
    if (thread == 0) copy();
    const int maker = (thread - 32) / kTokenThreads;
    if (thread >= 32 && maker < kMakers) make_tokens(maker, (thread - 32) % kTokenThreads);
    if (maker >= kMakers) pass_tiles(thread - 32 - kMakers * kTokenThreads);
  }
};

/// Grid: as many blocks as there are SMs.
template <bool ByChannel, int Taps>
__global__ void __launch_bounds__(StateStream<ByChannel, Taps>::kThreads, 1)
    state_stream_kernel(const __grid_constant__ DecodeParams params) {
  using Kernel = StateStream<ByChannel, Taps>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<128>())).run();
}

}  // namespace attune::kernels::linear::sm90
