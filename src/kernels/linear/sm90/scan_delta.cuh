// The chain of the delta rule over a sequence's chunks (layer kernels):
//
//   X = V - e^G K S        D = T X
//   O = e^G Q S + P D      S <- e^G_end S + (e^(G_end - G) K)^T D
//
// Nothing of the chain passes through shared memory or a barrier. Q, K, V, T and P are right
// operands, read where a producer warpgroup's copies put them, some chunks ahead; of a block of one
// warpgroup the producers also write O. A walk's silent chunks change the state alone.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/linear/sm90/scan_parts.cuh"

namespace attune::kernels::linear::sm90 {

/// ByChannel (kda): k and q come with their decay.
template <bool ByChannel, int Groups>
struct DeltaScan : ScanParts<128, Groups> {
  static constexpr int KeyColumns = 128;
  using Parts = ScanParts<KeyColumns, Groups>;
  using Packed = typename Parts::Packed;
  using PackedHalf = typename Parts::PackedHalf;
  using State = typename Parts::State;
  using Tokens = typename Parts::Tokens;
  using Parts::chunk_head, Parts::column, Parts::count_of, Parts::each_of_state;
  using Parts::d, Parts::p, Parts::sequence, Parts::head, Parts::first_column, Parts::thread;
  using Parts::fetch_keys, Parts::fetch_values, Parts::group, Parts::into_state, Parts::key_step;
  using Parts::kGroupThreads, Parts::kHalves, Parts::kPanels, Parts::kTile;
  using Parts::load_values, Parts::own_state, Parts::pack_half, Parts::pin, Parts::write_eight;
  using Parts::over_keys, Parts::over_tokens;

  static constexpr int kThreads = (Groups + 1) * kGroupThreads;
  /// Whether producers write O to memory. That takes it off a lone warpgroup's chain; where two
  /// share the tensor cores, they have more time than producers.
  static constexpr bool kHandsOver = Groups == 1;
  /// Walks in two parts are of blocks that find an SM each; kda's gain nothing.
  static constexpr bool kMaySilence = Groups == 1 && !ByChannel;
  /// As many as 227 KiB hold.
  static constexpr int kStages = ByChannel && Groups == 2 ? 2 : 3;

  struct None {};
  template <bool Present, int Tiles>
  using Some = std::conditional_t<Present, typename Parts::template Panels<Tiles>, None>;
  template <int Tiles>
  using Panels = typename Parts::template Panels<Tiles>;
  using Place = typename Parts::template Place<kStages>;

  struct Stage {
    Panels<kPanels> q;
    Panels<kPanels> k;
    Some<ByChannel, kPanels> k_until;
    Panels<Groups> v;
    Panels<1> solve;
    Panels<1> scores;
  };
  static constexpr int kGateFloats = ByChannel ? KeyColumns : 2 * kChunk;
  struct Shared {
    Stage stages[kStages];
    Some<kHandsOver, Groups> output;
    alignas(16) float gates[kStages][kGateFloats];
    ptx::Mbarrier full[kStages];
    ptx::Mbarrier empty[kStages];
    ptx::Mbarrier output_full;
    ptx::Mbarrier output_empty;
  };

  Shared& shared;

  __device__ DeltaScan(const PromptParams& params, Shared& s) : Parts(params), shared(s) {}

  // ---- producers

  /// Blocks on and below the diagonal of a dense 64 x 64 matrix.
  __device__ __forceinline__ void fetch_lower_blocks(Half* to, const Half* from) const {
    const int row = thread / 8;
    const int piece = thread % 8;
    to += piece_at<64>(row, piece);
    from += row * kChunk + 8 * piece;
#pragma unroll
    for (int first = 0; first < kChunk; first += kBlock)
      if (piece / 2 <= first / kBlock) ptx::cp_async_16(to + first * 64, from + first * kChunk);
  }

  __device__ __forceinline__ void fetch(int stage, int c) const {
    Stage& s = shared.stages[stage];
    const std::int64_t token = sequence.first_token + c * kChunk;
    const int count = count_of(c);
    fetch_keys(s.k.x, d.k, token, count);
    if constexpr (ByChannel) fetch_keys(s.k_until.x, d.k_until, token, count);
    fetch_values(s.v.x, token, count);
    fetch_lower_blocks(s.solve.x, d.solve + chunk_head(c) * kChunk * kChunk);
    if (!kMaySilence || c >= sequence.silent_chunks) {
      fetch_keys(s.q.x, d.q, token, count);
      fetch_lower_blocks(s.scores.x, d.scores + chunk_head(c) * kChunk * kChunk);
    }
    const float* gates = ByChannel ? d.end_decay + chunk_head(c) * KeyColumns
                                   : d.gates + chunk_head(c) * kNumGates * kChunk;
    if (thread < kGateFloats / 4)
      ptx::cp_async_16(shared.gates[stage] + 4 * thread, gates + 4 * thread);
    ptx::cp_async_mbarrier_arrive(shared.full[stage]);
  }

  /// O of chunk c to memory.
  __device__ __forceinline__ void write_output(int c) const {
    ptx::mbarrier_wait(shared.output_full,
                       static_cast<std::uint32_t>(c - sequence.silent_chunks) % 2);
    const int piece = thread % 8;
    const int row = thread / 8;
    const int count = count_of(c);
#pragma unroll
    for (int tile = 0; tile < Groups; ++tile) {
      const int first = first_column + 64 * tile + 8 * piece;
      Half* to = static_cast<Half*>(p.o) + (sequence.first_token + c * kChunk + row) * p.o_row +
                 static_cast<std::int64_t>(head) * p.dv + first;
      const Half* from = shared.output.x + tile * kTile + piece_at<64>(row, piece);
#pragma unroll
      for (int pass = 0; pass < kChunk; pass += kGroupThreads / 8) {
        const uint4 eight = *reinterpret_cast<const uint4*>(from + pass * 64);
        if (row + pass < count) write_eight(to, first, eight);
        to += kGroupThreads / 8 * p.o_row;
      }
    }
    ptx::mbarrier_arrive(shared.output_empty);
  }

  __device__ void produce() const {
    Place at{.parity = 1};
    constexpr int kBehind = kHandsOver ? kStages : 0;
    for (int c = 0; c < sequence.num_chunks + kBehind; ++c) {
      if (c < sequence.num_chunks) {
        ptx::mbarrier_wait(shared.empty[at.stage], at.parity);
        fetch(at.stage, c);
        at.advance();
      }
      // The chunk whose stage has just been filled again is done.
      if constexpr (kHandsOver)
        if (c - kStages >= sequence.silent_chunks) write_output(c - kStages);
    }
  }

  // ---- consumers

  /// Two gates of the thread's tokens in 8-column block n.
  __device__ __forceinline__ float2 gate_of(int stage, int gate, int n) const {
    return *reinterpret_cast<const float2*>(shared.gates[stage] + gate * kChunk + 8 * n +
                                            2 * (thread % 4));
  }

  /// A gate of the thread's tokens.
  using TokenGates = float2[kChunk / 8];
  __device__ __forceinline__ void load_gates(TokenGates& gates, int stage, int gate) const {
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n)
      gates[n] = ByChannel ? make_float2(1.0f, 1.0f) : gate_of(stage, gate, n);
  }

  /// X^T = V^T - since (K S)^T, in place of V^T.
  static __device__ __forceinline__ void subtract(Packed& values, const Tokens& predicted,
                                                  const TokenGates& since) {
#pragma unroll
    for (int kb = 0; kb < kChunk / 16; ++kb) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int n = 2 * kb + r / 2;
        const int at = 4 * n + 2 * (r % 2);
        values[kb][r] = pack(low_of(values[kb][r]) - since[n].x * predicted[at],
                             high_of(values[kb][r]) - since[n].y * predicted[at + 1]);
      }
    }
  }

  static __device__ __forceinline__ void scale(Tokens& o, const TokenGates& since) {
    if constexpr (!ByChannel) {
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          o[4 * n + 2 * h] *= since[n].x;
          o[4 * n + 2 * h + 1] *= since[n].y;
        }
      }
    }
  }

  __device__ __forceinline__ void decay_half(float (&state)[64], int half, int stage) const {
    const float* gates = shared.gates[stage];
    const float one = ByChannel ? 0.0f : gates[kSince * kChunk + kChunk - 1];
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float2 decay =
          ByChannel
              ? *reinterpret_cast<const float2*>(gates + 128 * half + 8 * n + 2 * (thread % 4))
              : make_float2(one, one);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        state[4 * n + 2 * h] *= decay.x;
        state[4 * n + 2 * h + 1] *= decay.y;
      }
    }
  }

  /// A product of tokens as a left operand, each token times its gate.
  static __device__ __forceinline__ void pack_tokens(Packed& packed, const Tokens& x,
                                                     const TokenGates& gates) {
#pragma unroll
    for (int kb = 0; kb < kChunk / 16; ++kb) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int n = 2 * kb + r / 2;
        const int at = 4 * n + 2 * (r % 2);
        packed[kb][r] = pack(x[at] * gates[n].x, x[at + 1] * gates[n].y);
      }
    }
  }
  static __device__ __forceinline__ void pack_tokens(Packed& packed, const Tokens& x) {
    TokenGates ones;
#pragma unroll
    for (float2& gate : ones) gate = make_float2(1.0f, 1.0f);
    pack_tokens(packed, x, ones);
  }

  /// O, turned back to tokens by value columns, for the producers to write to memory.
  __device__ __forceinline__ void hand_over(const Tokens& o, int c) const {
    ptx::mbarrier_wait(shared.output_empty,
                       static_cast<std::uint32_t>(c - sequence.silent_chunks + 1) % 2);
    const int l = lane_id();
    Half* tile = shared.output.x + group() * kTile;
#pragma unroll
    for (int n = 0; n < kChunk / 8; n += 2) {
      const std::uint32_t blocks[4] = {
          pack(o[4 * n], o[4 * n + 1]), pack(o[4 * n + 2], o[4 * n + 3]),
          pack(o[4 * n + 4], o[4 * n + 5]), pack(o[4 * n + 6], o[4 * n + 7])};
      ptx::stmatrix_trans(
          tile + piece_at<64>(8 * (n + l / 16) + l % 8, thread / 32 * 2 + l / 8 % 2), blocks);
    }
    __syncwarp();
    if (l == 0) ptx::mbarrier_arrive(shared.output_full);
  }

  /// Each 8 x 8 block of O turned back to tokens by value columns; then neighbouring lanes swap, so
  /// that one has four columns of the first block and the other four of the second.
  __device__ __forceinline__ void write_own_output(const Tokens& o, int c) const {
    const int count = count_of(c);
    const int g = thread % 32 / 4;
    const int j = thread % 4;
    const bool odd = j % 2 != 0;
    const int first = first_column + 64 * group() + thread / 32 * 16 + (odd ? 8 : 0) + j / 2 * 4;
    Half* to = static_cast<Half*>(p.o) + (sequence.first_token + c * kChunk + g) * p.o_row +
               static_cast<std::int64_t>(head) * p.dv + first;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      const std::uint32_t a = ptx::movmatrix_trans(pack(o[4 * n], o[4 * n + 1]));
      const std::uint32_t b = ptx::movmatrix_trans(pack(o[4 * n + 2], o[4 * n + 3]));
      const std::uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
      const uint2 four = odd ? make_uint2(other, b) : make_uint2(a, other);
      Half* at = to + 8 * n * p.o_row;
      if (8 * n + g >= count) continue;
      if (d.wide_o && first + 4 <= p.dv) {
        *reinterpret_cast<uint2*>(at) = four;
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (first + e < p.dv)
          at[e] = static_cast<Half>((e < 2 ? four.x : four.y) >> (e % 2 == 0 ? 0 : 16));
    }
  }

  __device__ __forceinline__ void finish_output(const Tokens& o, int c) const {
    if constexpr (kHandsOver) {
      hand_over(o, c);
    } else {
      write_own_output(o, c);
    }
  }

  __device__ __forceinline__ void release(int stage) const {
    __syncwarp();
    if (thread % 32 == 0) ptx::mbarrier_arrive(shared.empty[stage]);
  }

  __device__ __forceinline__ void wait_for(const Place& at) const {
    ptx::mbarrier_wait(shared.full[at.stage], at.parity);
    ptx::fence_proxy_async();
  }

  /// A chunk's K S has been made, and there are chunks with output behind.
  __device__ __forceinline__ void walk_silently(State& state, PackedHalf& packed, Tokens& x,
                                                Packed& values, TokenGates& since,
                                                Place& at) const {
#pragma unroll 1
    for (int c = 0; c < sequence.silent_chunks; ++c) {
      const int stage = at.stage;
      const Stage& s = shared.stages[stage];
      subtract(values, x, since);
      ptx::wgmma_fence();
      over_tokens(x, values, s.solve.x, false);
      decay_half(state[0], 0, stage);
      TokenGates until;
      load_gates(until, stage, kUntil);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(x);
      Packed kept;
      pack_tokens(kept, x, until);
      ptx::wgmma_fence();
      into_state(state, kept, s.k.x);
      at.advance();
      wait_for(at);
      ptx::wgmma_wait<0>();
      pin(state);
      pack_half(packed, state[0]);
      ptx::wgmma_fence();
      over_keys(x, packed, shared.stages[at.stage].k.x, false);
      load_values(values, shared.stages[at.stage].v.x);
      load_gates(since, at.stage, kSince);
      release(stage);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(x);
    }
  }

  /// The tensor cores work through K S, Q S (first half), T X, Q S (second half), S, P D, and the
  /// registers between them are made ready behind the next in line; what a step reads from shared
  /// memory is on its way before the product it waits for.
  __device__ __forceinline__ void walk_delta(State& state) const {
    PackedHalf packed;
    Tokens x;
    Tokens o;
    Packed values;
    TokenGates since;
    Place at;
    wait_for(at);
    pack_half(packed, state[0]);
    ptx::wgmma_fence();
    over_keys(x, packed, shared.stages[0].k.x, false);
    load_values(values, shared.stages[0].v.x);
    load_gates(since, 0, kSince);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(x);
    if constexpr (kMaySilence) walk_silently(state, packed, x, values, since, at);
#pragma unroll 1
    for (int c = kMaySilence ? sequence.silent_chunks : 0; c < sequence.num_chunks; ++c) {
      const int stage = at.stage;
      const Stage& s = shared.stages[stage];
      ptx::wgmma_fence();
      Parts::template over_keys<0, 4>(o, packed, s.q.x, false);
      subtract(values, x, since);
      ptx::wgmma_fence();
      over_tokens(x, values, s.solve.x, false);
      Parts::template over_keys<4, 8>(o, packed, s.q.x, true);
      decay_half(state[0], 0, stage);
      TokenGates until;
      load_gates(until, stage, kUntil);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(x);
      Packed written;
      Packed kept;
      if constexpr (ByChannel) {
        pack_tokens(written, x);
        ptx::wgmma_fence();
        into_state(state, written, s.k_until.x);
      } else {
        pack_tokens(kept, x, until);
        ptx::wgmma_fence();
        into_state(state, kept, s.k.x);
        pack_tokens(written, x);
      }
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(o);
      scale(o, since);
      ptx::wgmma_fence();
      over_tokens(o, written, s.scores.x, true);
      if (c + 1 < sequence.num_chunks) {
        at.advance();
        wait_for(at);
      }
      ptx::wgmma_wait<1>();
      pin(state);
      pack_half(packed, state[0]);
      ptx::wgmma_fence();
      // Of the last chunk a product that nobody reads.
      over_keys(x, packed, shared.stages[at.stage].k.x, false);
      load_values(values, shared.stages[at.stage].v.x);
      load_gates(since, at.stage, kSince);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(o);
      release(stage);
      finish_output(o, c);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(x);
    }
  }

  __device__ __forceinline__ float* first_state() const {
    if (!kMaySilence || sequence.copy < 0) return own_state();
    return d.copies +
           (static_cast<std::int64_t>(sequence.copy) * p.num_v_heads + head) * p.dv * p.dk;
  }

  __device__ void consume() const {
    State state;
    each_of_state(first_state(), [&](int half, int i, const float* at, bool inside) {
      state[half][i] = inside ? *at : 0.0f;
    });
    walk_delta(state);
    if constexpr (kMaySilence)
      if (sequence.copy >= 0) return;
    each_of_state(own_state(), [&](int half, int i, float* to, bool inside) {
      if (inside) *to = state[half][i];
    });
  }

  __device__ void run() {
    const int all = static_cast<int>(threadIdx.x);
    if (all == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        ptx::mbarrier_init(shared.full[stage], kGroupThreads);
        ptx::mbarrier_init(shared.empty[stage], 4 * Groups);
      }
      ptx::mbarrier_init(shared.output_full, 4 * Groups);
      ptx::mbarrier_init(shared.output_empty, kGroupThreads);
      ptx::mbarrier_init_fence();
    }
    // T and P come without their upper blocks, which nobody overwrites.
    for (int stage = 0; stage < kStages; ++stage) {
      for (int i = all; i < kTile / 8; i += kThreads) {
        reinterpret_cast<uint4*>(shared.stages[stage].solve.x)[i] = make_uint4(0, 0, 0, 0);
        reinterpret_cast<uint4*>(shared.stages[stage].scores.x)[i] = make_uint4(0, 0, 0, 0);
      }
    }
    __syncthreads();
    if (all < kGroupThreads) {
      if constexpr (Groups == 2) ptx::registers_give<56>();
      produce();
    } else {
      if constexpr (Groups == 2) ptx::registers_take<224>();
      consume();
    }
  }
};

/// Grid: sequences, value heads, slices, the last running fastest.
template <bool ByChannel, int Groups>
__global__ void __launch_bounds__(DeltaScan<ByChannel, Groups>::kThreads, 1)
    delta_scan_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = DeltaScan<ByChannel, Groups>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<1024>())).run();
}

}  // namespace attune::kernels::linear::sm90
