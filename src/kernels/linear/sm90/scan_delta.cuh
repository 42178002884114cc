// The chain of the delta rule over a sequence's chunks (layer kernels):
//
//   X = V - e^G K S        D = T X
//   O = e^G Q S + P D      S <- e^G_end S + (e^(G_end - G) K)^T D
//
// Nothing of the chain passes through shared memory or a barrier. Q, K, V, T and P are right
// operands, read where the copy engine put them, some chunks ahead; O is turned by way of shared
// memory and written by warps of its own. Where scores runs beside it, each chunk's is waited for.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/linear/sm90/scan_parts.cuh"
#include "kernels/ptx/acquire.cuh"
#include "kernels/ptx/atomic.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/wgmma_narrow.cuh"

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
  using Parts::group, Parts::into_state, Parts::key_head, Parts::key_step;
  using Parts::kGroupThreads, Parts::kHalves, Parts::kPanels, Parts::kTile;
  using Parts::load_values, Parts::own_state, Parts::pack_half, Parts::pin, Parts::write_eight;
  using Parts::over_keys;

  static constexpr int kThreads = (Groups + 1) * kGroupThreads;
  /// As many as 227 KiB hold.
  static constexpr int kStages = ByChannel && Groups == 2 ? 2 : 3;

  struct None {};
  template <bool Present, int Tiles>
  using Some = std::conditional_t<Present, typename Parts::template Panels<Tiles>, None>;
  template <int Tiles>
  using Panels = typename Parts::template Panels<Tiles>;
  using Place = typename Parts::template Place<kStages>;

  static constexpr int kBlocksOfChunk = kChunk / kBlock;
  static constexpr int kColumnOfBlocks = kChunk * kBlock;  ///< elements
  /// The panels of a matrix of Pairs with all of their rows; those of the upper blocks are zeros
  /// that nobody overwrites.
  struct alignas(256) Matrix {
    Half x[kBlocksOfChunk * kColumnOfBlocks];
  };

  struct Stage {
    Panels<kPanels> q;
    Panels<kPanels> k;
    Some<ByChannel, kPanels> k_until;
    Panels<Groups> v;
    Matrix solve;
    Matrix scores;
  };
  struct Shared {
    Stage stages[kStages];
    Panels<Groups> output;
    alignas(16) float decay[kStages][2 * kChunk];
    ptx::Mbarrier keys_full[kStages];     ///< and v and decay
    ptx::Mbarrier queries_full[kStages];  ///< and T
    ptx::Mbarrier scores_full[kStages];   ///< P; by channel k until the chunk's end too
    ptx::Mbarrier empty[kStages];
    ptx::Mbarrier output_full;
    ptx::Mbarrier output_empty;
  };
  static_assert(sizeof(Shared) <= 227 * 1024);

  Shared& shared;

  __device__ DeltaScan(const PromptParams& params, Shared& s) : Parts(params), shared(s) {}

  // ---- a thread that asks for chunks, three warps that write O

  static __device__ __forceinline__ void fetch_matrix(Matrix& to, const Half* from,
                                                      ptx::Mbarrier& full) {
#pragma unroll
    for (int block = 0; block < kBlocksOfChunk; ++block)
      ptx::bulk_load(to.x + block * (kColumnOfBlocks + kBlock * kBlock),
                     from + triangle_panel(block) + block * kBlock * kBlock,
                     (kChunk - block * kBlock) * kBlock * sizeof(Half), full);
  }

  /// In the order in which the chain wants it: asking for all of it takes longer than half a chunk.
  __device__ __forceinline__ void fetch(int stage, int c) const {
    Stage& s = shared.stages[stage];
    const int chunk = sequence.first_chunk + c;
    const Pairs& pairs = d.pairs[chunk_head(c)];
    constexpr std::uint32_t kKeyBytes = sizeof(s.k);
    constexpr std::uint32_t kValueBytes = sizeof(s.v);
    constexpr std::uint32_t kMatrixBytes = sizeof(pairs.solve);
    ptx::Mbarrier& keys = shared.keys_full[stage];
    ptx::mbarrier_arrive_expect(
        keys, kKeyBytes + kValueBytes + static_cast<std::uint32_t>(sizeof(pairs.decay)));
    ptx::bulk_load(s.k.x, d.k.tiles(chunk, key_head), kKeyBytes, keys);
    ptx::bulk_load(s.v.x, d.v.tiles(chunk, head) + first_column * kChunk, kValueBytes, keys);
    ptx::bulk_load(shared.decay[stage], pairs.decay, sizeof(pairs.decay), keys);
    ptx::Mbarrier& queries = shared.queries_full[stage];
    ptx::mbarrier_arrive_expect(queries, kKeyBytes + kMatrixBytes);
    ptx::bulk_load(s.q.x, d.q.tiles(chunk, key_head), kKeyBytes, queries);
    fetch_matrix(s.solve, pairs.solve, queries);
    ptx::Mbarrier& scores = shared.scores_full[stage];
    ptx::mbarrier_arrive_expect(scores, (ByChannel ? kKeyBytes : 0) + kMatrixBytes);
    if constexpr (ByChannel)
      ptx::bulk_load(s.k_until.x, d.k_until.tiles(chunk, key_head), kKeyBytes, scores);
    fetch_matrix(s.scores, pairs.scores, scores);
  }

  // ---- what scores beside this block has made

  [[nodiscard]] __device__ __forceinline__ std::int32_t* ready(int c) const {
    return d.ready + static_cast<std::int64_t>(head) * d.num_chunks + sequence.first_chunk + c;
  }

  /// Waits for chunk c; how many from it on are ready. A look takes longer than half a chunk, so
  /// that some are looked at together.
  __device__ __forceinline__ int wait_for_scores(int c) const {
    constexpr int kLook = 8;
    std::int32_t there[kLook];
#pragma unroll
    for (int i = 0; i < kLook; ++i)
      there[i] = ptx::look_at(ready(min(c + i, sequence.num_chunks - 1)));
    int leading = 0;
#pragma unroll
    for (int i = 0; i < kLook; ++i)
      if (leading == i && there[i] != 0) ++leading;
    if (leading > 0) {
      ptx::acquire_what_was_seen();
    } else {
      ptx::wait_for(ready(c), 1);
      leading = 1;
    }
    ptx::fence_proxy_async_global();
    return leading;
  }

  __device__ void produce() const {
    Place at{.parity = 1};
    int known = 0;
    for (int c = 0; c < sequence.num_chunks; ++c) {
      if (d.ready != nullptr && c >= known) known = c + wait_for_scores(c);
      ptx::mbarrier_wait(shared.empty[at.stage], at.parity);
      fetch(at.stage, c);
      at.advance();
    }
    if (d.ready != nullptr) forget_scores();
  }

  static constexpr int kWriters = kGroupThreads - 32;

  __device__ void write_outputs() const {
    constexpr int kPieces = 8 * Groups;  ///< of a row
    constexpr int kRows = kWriters / kPieces;
    const int piece = (thread - 32) % kPieces;
    const int first_row = (thread - 32) / kPieces;
    const int first = first_column + 8 * piece;
    const Half* const tile = shared.output.x + piece / 8 * kTile;
    Half* to = static_cast<Half*>(p.o) + (sequence.first_token + first_row) * p.o_row +
               static_cast<std::int64_t>(head) * p.dv + first;
    for (int c = 0; c < sequence.num_chunks; ++c) {
      ptx::mbarrier_wait(shared.output_full, static_cast<std::uint32_t>(c) % 2);
      const int count = count_of(c);
      Half* at = to;
#pragma unroll 4
      for (int row = first_row; row < count; row += kRows) {
        write_eight(at, first,
                    *reinterpret_cast<const uint4*>(tile + piece_at<64>(row, piece % 8)));
        at += kRows * p.o_row;
      }
      to += kChunk * p.o_row;
      __syncwarp();
      if (lane_id() == 0) ptx::mbarrier_arrive(shared.output_empty);
    }
  }

  /// The last of a head's blocks leaves `ready` and `passed` as the next launch wants them.
  __device__ __forceinline__ void forget_scores() const {
    const int slices = d.value_columns / (64 * Groups);
    const std::int64_t work = static_cast<std::int64_t>(blockIdx.x) / slices;
    if (ptx::arrive_at(d.passed + work) + 1 < slices) return;
    for (int c = 0; c < sequence.num_chunks; ++c) *ready(c) = 0;
    d.passed[work] = 0;
    // All that scores made has been read: this waits for its blocks to have left.
    ptx::dependency_wait();
    if (work == 0) *d.next = 0;
  }

  // ---- consumers

  /// sum (+)= left (rows of a matrix)^T.
  static __device__ __forceinline__ void over_tokens(Tokens& sum, const Packed& left,
                                                     const Matrix& matrix, bool accumulate) {
    const std::uint64_t right = ptx::wgmma_descriptor_narrow(matrix.x);
#pragma unroll
    for (int kb = 0; kb < kBlocksOfChunk; ++kb)
      ptx::wgmma_rs<__nv_bfloat16, kChunk, ptx::Major::k>(
          sum, left[kb],
          right + static_cast<std::uint64_t>(kb * kColumnOfBlocks * sizeof(Half) >> 4),
          accumulate || kb > 0);
    ptx::wgmma_commit();
  }

  /// Two gates of the thread's tokens in 8-column block n.
  __device__ __forceinline__ float2 gate_of(int stage, int gate, int n) const {
    return *reinterpret_cast<const float2*>(shared.decay[stage] + gate * kChunk + 8 * n +
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
    const float* gates = shared.decay[stage];
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
    ptx::mbarrier_wait(shared.output_empty, static_cast<std::uint32_t>(c + 1) % 2);
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

  __device__ __forceinline__ void release(int stage) const {
    __syncwarp();
    if (thread % 32 == 0) ptx::mbarrier_arrive(shared.empty[stage]);
  }

  static __device__ __forceinline__ void wait_for(ptx::Mbarrier (&full)[kStages], const Place& at) {
    ptx::mbarrier_wait(full[at.stage], at.parity);
  }

  /// Which of a stage's barriers were seen to be full.
  struct Seen {
    bool keys;
    bool queries;
    bool scores;
  };
  /// While the chain waits for products anyway: elsewhere even a wait for what is there costs it.
  [[nodiscard]] __device__ __forceinline__ Seen look(const Place& at) const {
    return {ptx::mbarrier_test(shared.keys_full[at.stage], at.parity),
            ptx::mbarrier_test(shared.queries_full[at.stage], at.parity),
            ptx::mbarrier_test(shared.scores_full[at.stage], at.parity)};
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
    wait_for(shared.keys_full, at);
    pack_half(packed, state[0]);
    ptx::wgmma_fence();
    over_keys(x, packed, shared.stages[0].k.x, false);
    load_values(values, shared.stages[0].v.x);
    load_gates(since, 0, kSince);
    wait_for(shared.queries_full, at);
    Seen seen = look(at);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(x);
#pragma unroll 1
    for (int c = 0; c < sequence.num_chunks; ++c) {
      const int stage = at.stage;
      const Stage& s = shared.stages[stage];
      ptx::wgmma_fence();
      Parts::template over_keys<0, 4>(o, packed, s.q.x, false);
      subtract(values, x, since);
      ptx::wgmma_fence();
      over_tokens(x, values, s.solve, false);
      Parts::template over_keys<4, 8>(o, packed, s.q.x, true);
      decay_half(state[0], 0, stage);
      TokenGates until;
      load_gates(until, stage, kUntil);
      if (!seen.scores) wait_for(shared.scores_full, at);
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
      if (c + 1 < sequence.num_chunks) at.advance();
      seen = look(at);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(o);
      scale(o, since);
      ptx::wgmma_fence();
      over_tokens(o, written, s.scores, true);
      if (!seen.keys) wait_for(shared.keys_full, at);
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
      hand_over(o, c);
      if (!seen.queries) wait_for(shared.queries_full, at);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(x);
    }
  }

  __device__ void consume() const {
    State state;
    each_of_state(own_state(), [&](int half, int i, const float* at, bool inside) {
      state[half][i] = inside ? *at : 0.0f;
    });
    walk_delta(state);
    each_of_state(own_state(), [&](int half, int i, float* to, bool inside) {
      if (inside) *to = state[half][i];
    });
  }

  __device__ void run() {
    const int all = static_cast<int>(threadIdx.x);
    if (all == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        ptx::mbarrier_init(shared.keys_full[stage], 1);
        ptx::mbarrier_init(shared.queries_full[stage], 1);
        ptx::mbarrier_init(shared.scores_full[stage], 1);
        ptx::mbarrier_init(shared.empty[stage], 4 * Groups);
      }
      ptx::mbarrier_init(shared.output_full, 4 * Groups);
      ptx::mbarrier_init(shared.output_empty, kWriters / 32);
      ptx::mbarrier_init_fence();
    }
    for (Stage& stage : shared.stages)
      for (Matrix* matrix : {&stage.solve, &stage.scores})
        for (int i = all; i < static_cast<int>(sizeof(Matrix) / sizeof(uint4)); i += kThreads)
          reinterpret_cast<uint4*>(matrix->x)[i] = make_uint4(0, 0, 0, 0);
    ptx::fence_proxy_async();
    __syncthreads();
    if (all < kGroupThreads) {
      if constexpr (Groups == 2) ptx::registers_give<56>();
      if (all == 0) produce();
      if (all >= 32) write_outputs();
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
