// The scan without delta rule (layer kernels):
//
//   D = beta V      O = e^G Q S + P D      S <- e^G_end S + (e^(G_end - G) K)^T D
//
// Three roles. *Producers* copy a chunk's rows into two rings, some chunks ahead: what the state
// needs, and what only the output does. The *state's* warpgroups walk the chain, S^T in their
// registers, and leave a copy of it for the *output's* warpgroup. That one makes P, which never
// leaves its registers, and O by tokens as they are written: its products and exponentials fill
// what the chain leaves idle.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/scan_parts.cuh"

namespace attune::kernels::linear::sm90 {

template <int KeyColumns, int Groups>
struct PlainScan : ScanParts<KeyColumns, Groups> {
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

  /// Warpgroups of the output, which take chunks in turn: where registers allow, two.
  static constexpr int kFollowers = Groups == 1 && KeyColumns == 128 ? 2 : 1;
  static constexpr int kThreads = (1 + Groups + kFollowers) * kGroupThreads;
  static constexpr int kValues = 64 * Groups;
  /// As many as 227 KiB hold.
  static constexpr int kStages = KeyColumns == 256 ? 2 : Groups == 2 ? 3 : 4;

  /// Registers of a thread: together no more than the file has.
  static constexpr bool kFourGroups = Groups + kFollowers == 3;
  static constexpr int kProducerRegisters = kFourGroups ? 40 : 56;
  static constexpr int kStateRegisters = kFourGroups ? 160 : 240;
  static constexpr int kOutputRegisters = kFourGroups ? 152 : 168;
  static_assert(kProducerRegisters + Groups * kStateRegisters + kFollowers * kOutputRegisters <=
                512);

  template <int Tiles>
  using Panels = typename Parts::template Panels<Tiles>;
  using Place = typename Parts::template Place<kStages>;
  struct StateStage {
    Panels<kPanels> k;
    Panels<Groups> v;
  };
  struct Shared {
    StateStage of_state[kStages];
    Panels<kPanels> q[kStages];
    /// S^T at a chunk's begin: tiles by key panel, then group.
    Panels<kPanels * Groups> state[kFollowers];
    Panels<Groups> output[kFollowers];
    alignas(16) float state_gates[kStages][kNumGates * kChunk];
    alignas(16) float output_gates[kStages][kNumGates * kChunk];
    ptx::Mbarrier state_full[kStages];
    ptx::Mbarrier state_empty[kStages];
    ptx::Mbarrier output_full[kStages];
    ptx::Mbarrier output_empty[kStages];
    ptx::Mbarrier s_full[kFollowers];
    ptx::Mbarrier s_empty[kFollowers];
  };
  static_assert(sizeof(Shared) <= 227 * 1024);

  Shared& shared;

  __device__ PlainScan(const PromptParams& params, Shared& s) : Parts(params), shared(s) {}

  /// One arrival a warp, after all its lanes.
  static __device__ __forceinline__ void arrive(ptx::Mbarrier& barrier) {
    __syncwarp();
    if (lane_id() == 0) ptx::mbarrier_arrive(barrier);
  }

  // ---- producers

  __device__ __forceinline__ void fetch_gates(float* to, int c) const {
    constexpr int kPieces = kNumGates * kChunk / 4;
    static_assert(kPieces <= kGroupThreads);
    if (thread < kPieces)
      ptx::cp_async_16(to + 4 * thread, d.gates + chunk_head(c) * kNumGates * kChunk + 4 * thread);
  }
  __device__ __forceinline__ void fetch_for_state(int stage, int c) const {
    const std::int64_t token = sequence.first_token + c * kChunk;
    fetch_keys(shared.of_state[stage].k.x, d.k, token, count_of(c));
    fetch_values(shared.of_state[stage].v.x, token, count_of(c));
    fetch_gates(shared.state_gates[stage], c);
    ptx::cp_async_mbarrier_arrive(shared.state_full[stage]);
  }
  __device__ __forceinline__ void fetch_for_output(int stage, int c) const {
    fetch_keys(shared.q[stage].x, d.q, sequence.first_token + c * kChunk, count_of(c));
    fetch_gates(shared.output_gates[stage], c);
    ptx::cp_async_mbarrier_arrive(shared.output_full[stage]);
  }

  /// The state's ring is filled a chunk further.
  __device__ void produce() const {
    Place state{.parity = 1};
    Place output{.parity = 1};
    for (int c = 0; c <= sequence.num_chunks; ++c) {
      if (c < sequence.num_chunks) {
        ptx::mbarrier_wait(shared.state_empty[state.stage], state.parity);
        fetch_for_state(state.stage, c);
        state.advance();
      }
      if (c > 0) {
        ptx::mbarrier_wait(shared.output_empty[output.stage], output.parity);
        fetch_for_output(output.stage, c - 1);
        output.advance();
      }
    }
  }

  // ---- the state

  /// Two gates of the thread's tokens in 8-column block n.
  __device__ __forceinline__ float2 gate_of(int stage, int gate, int n) const {
    return *reinterpret_cast<const float2*>(shared.state_gates[stage] + gate * kChunk + 8 * n +
                                            2 * (thread % 4));
  }

  __device__ __forceinline__ void decay_half(float (&state)[64], int half, int stage) const {
    const float* gates = shared.state_gates[stage];
    const float one = gates[kSince * kChunk + kChunk - 1];
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float2 decay = make_float2(one, one);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        state[4 * n + 2 * h] *= decay.x;
        state[4 * n + 2 * h + 1] *= decay.y;
      }
    }
  }

  /// beta V^T with the decay until the chunk's end.
  __device__ __forceinline__ void scale_values(Packed& until, const Packed& values,
                                               int stage) const {
#pragma unroll
    for (int kb = 0; kb < kChunk / 16; ++kb) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int n = 2 * kb + r / 2;
        const float2 beta = gate_of(stage, kBeta, n);
        const float2 factor = gate_of(stage, kUntil, n);
        until[kb][r] = pack(low_of(values[kb][r]) * (beta.x * factor.x),
                            high_of(values[kb][r]) * (beta.y * factor.y));
      }
    }
  }

  __device__ __forceinline__ void wait_for(const Place& at) const {
    ptx::mbarrier_wait(shared.state_full[at.stage], at.parity);
    ptx::fence_proxy_async();
  }

  /// Packed registers of 16 columns to `tile`, whose rows are value columns.
  __device__ __forceinline__ void leave(Half* tile, int first_piece,
                                        const std::uint32_t (&packed)[4]) const {
    const int l = lane_id();
    ptx::stmatrix(tile + piece_at<64>(thread / 32 * 16 + l % 16, first_piece + l / 16), packed);
  }
  /// Of its output's warpgroup.
  static __device__ __forceinline__ std::uint32_t turn_of(int c) {
    return static_cast<std::uint32_t>(c / kFollowers % 2);
  }
  __device__ __forceinline__ void leave_state_half(int c, int half,
                                                   const PackedHalf& packed) const {
#pragma unroll
    for (int ks = 0; ks < 8; ++ks)
      leave(shared.state[c % kFollowers].x + ((2 * half + ks / 4) * Groups + group()) * kTile,
            ks % 4 * 2, packed[ks]);
  }
  __device__ __forceinline__ void wait_for_room(int c) const {
    ptx::mbarrier_wait(shared.s_empty[c % kFollowers], turn_of(c) ^ 1);
  }
  __device__ __forceinline__ void hand_over_state(int c) const {
    ptx::fence_proxy_async();
    arrive(shared.s_full[c % kFollowers]);
  }

  __device__ __forceinline__ void walk_chunks(State& state) const {
    Place at;
#pragma unroll 1
    for (int c = 0; c < sequence.num_chunks; ++c) {
      const int stage = at.stage;
      wait_for_room(c);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        PackedHalf packed;
        pack_half(packed, state[half]);
        leave_state_half(c, half, packed);
      }
      hand_over_state(c);
      wait_for(at);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) decay_half(state[half], half, stage);
      Packed values;
      Packed until;
      load_values(values, shared.of_state[stage].v.x);
      scale_values(until, values, stage);
      ptx::wgmma_fence();
      into_state(state, until, shared.of_state[stage].k.x);
      ptx::wgmma_wait<0>();
      pin(state);
      arrive(shared.state_empty[stage]);
      at.advance();
    }
  }

  __device__ void walk() const {
    State state;
    each_of_state(own_state(), [&](int half, int i, const float* at, bool inside) {
      state[half][i] = inside ? *at : 0.0f;
    });
    walk_chunks(state);
    each_of_state(own_state(), [&](int half, int i, float* to, bool inside) {
      if (inside) *to = state[half][i];
    });
  }

  // ---- the output: a thread's tokens are `token` and 8 more, its columns 8 n + 2 j and the next

  using Output = float[kValues / 2];

  __device__ __forceinline__ int token() const { return thread / 32 * 16 + thread % 32 / 4; }

  /// o = Q S.
  __device__ __forceinline__ void over_state(Output& o, const Half* queries,
                                             const Half* state) const {
    const std::uint64_t q = ptx::wgmma_descriptor(queries);
    const std::uint64_t right = ptx::wgmma_descriptor(state);
#pragma unroll
    for (int ks = 0; ks < KeyColumns / 16; ++ks)
      ptx::wgmma_ss<__nv_bfloat16, kValues, ptx::Major::k, ptx::Major::k>(
          o, q + key_step(ks),
          right + static_cast<std::uint64_t>((ks / 4 * Groups * kTile * 2 + ks % 4 * 32) >> 4),
          ks > 0);
    ptx::wgmma_commit();
  }

  /// o *= e^G.
  __device__ __forceinline__ void scale_rows(Output& o, int stage) const {
    const float* since = shared.output_gates[stage] + kSince * kChunk + token();
    const float factor[2] = {since[0], since[8]};
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) o[i] *= factor[i / 2 % 2];
  }

  /// P, with beta in its columns, from Q K^T.
  __device__ __forceinline__ void decay_scores(Packed& scores, const Tokens& qk, int stage) const {
    const float* log_decay = shared.output_gates[stage] + kLogDecay * kChunk;
    const float* beta = shared.output_gates[stage] + kBeta * kChunk;
    const float end[2] = {kLog2E * log_decay[token()], kLog2E * log_decay[token() + 8]};
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      const int column = 8 * n + 2 * (thread % 4);
      const float2 begin = *reinterpret_cast<const float2*>(log_decay + column);
      const float2 factor = *reinterpret_cast<const float2*>(beta + column);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = token() + 8 * h;
        // Above the diagonal the decay may be infinite, and is not used.
        const float x =
            qk[4 * n + 2 * h] * factor.x * ptx::exp2_approx(fmaf(begin.x, -kLog2E, end[h]));
        const float y =
            qk[4 * n + 2 * h + 1] * factor.y * ptx::exp2_approx(fmaf(begin.y, -kLog2E, end[h]));
        scores[n / 2][n % 2 * 2 + h] = pack(column <= row ? x : 0.0f, column + 1 <= row ? y : 0.0f);
      }
    }
  }

  __device__ __forceinline__ void add_skip(Output& o, const Half* v, float skip) const {
#pragma unroll
    for (int n = 0; n < kValues / 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(
            v + n / 8 * kTile + element_at<64>(token() + 8 * h, n % 8 * 8 + 2 * (thread % 4)));
        o[4 * n + 2 * h] += skip * low_of(pair);
        o[4 * n + 2 * h + 1] += skip * high_of(pair);
      }
    }
  }

  /// A warp turns its 16 tokens into whole 16 bytes.
  __device__ __forceinline__ void write_output(const Output& o, int c) const {
    Half* const tiles = shared.output[c % kFollowers].x;
    const int l = lane_id();
    const int first_row = thread / 32 * 16;
    __syncwarp();  // the last chunk's have been read
#pragma unroll
    for (int n = 0; n < kValues / 8; n += 2) {
      const std::uint32_t blocks[4] = {
          pack(o[4 * n], o[4 * n + 1]), pack(o[4 * n + 2], o[4 * n + 3]),
          pack(o[4 * n + 4], o[4 * n + 5]), pack(o[4 * n + 6], o[4 * n + 7])};
      ptx::stmatrix(tiles + n / 8 * kTile + piece_at<64>(first_row + l % 16, n % 8 + l / 16),
                    blocks);
    }
    __syncwarp();
    constexpr int kPieces = kValues / 8;
    constexpr int kRows = 32 / kPieces;
    const int piece = l % kPieces;
    const int row = first_row + l / kPieces;
    const int count = count_of(c);
    const int first = first_column + 8 * piece;
    Half* to = static_cast<Half*>(p.o) + (sequence.first_token + c * kChunk + row) * p.o_row +
               static_cast<std::int64_t>(head) * p.dv + first;
#pragma unroll
    for (int pass = 0; pass < 16; pass += kRows) {
      const uint4 eight = *reinterpret_cast<const uint4*>(tiles + piece / 8 * kTile +
                                                          piece_at<64>(row + pass, piece % 8));
      if (row + pass < count) {
        write_eight(to, first, eight);
      }
      to += kRows * p.o_row;
    }
  }

  /// Chunks from `first` on, kFollowers apart.
  __device__ __forceinline__ void follow(int first) const {
    const float skip = p.d_skip != nullptr ? p.d_skip[head] : 0.0f;
    Place at;
    for (int c = 0; c < first; ++c) at.advance();
#pragma unroll 1
    for (int c = first; c < sequence.num_chunks; c += kFollowers) {
      const Half* queries = shared.q[at.stage].x;
      const StateStage& of_state = shared.of_state[at.stage];
      Tokens qk;
      Output o;
      ptx::mbarrier_wait(shared.output_full[at.stage], at.parity);
      ptx::mbarrier_wait(shared.state_full[at.stage], at.parity);
      ptx::fence_proxy_async();
      const std::uint64_t q = ptx::wgmma_descriptor(queries);
      const std::uint64_t k = ptx::wgmma_descriptor(of_state.k.x);
      ptx::wgmma_pin(qk);
      ptx::wgmma_fence();
#pragma unroll
      for (int ks = 0; ks < KeyColumns / 16; ++ks)
        ptx::wgmma_ss<__nv_bfloat16, kChunk, ptx::Major::k, ptx::Major::k>(
            qk, q + key_step(ks), k + key_step(ks), ks > 0);
      ptx::wgmma_commit();
      ptx::mbarrier_wait(shared.s_full[c % kFollowers], turn_of(c));
      ptx::wgmma_pin(o);
      ptx::wgmma_fence();
      over_state(o, queries, shared.state[c % kFollowers].x);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(qk);
      Packed scores;
      decay_scores(scores, qk, at.stage);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(o);
      arrive(shared.s_empty[c % kFollowers]);
      scale_rows(o, at.stage);
      arrive(shared.output_empty[at.stage]);
      ptx::wgmma_pin(o);
      ptx::wgmma_fence();
      const std::uint64_t values = ptx::wgmma_descriptor(of_state.v.x, kTile * sizeof(Half));
#pragma unroll
      for (int kb = 0; kb < kChunk / 16; ++kb)
        ptx::wgmma_rs<__nv_bfloat16, kValues, ptx::Major::mn>(
            o, scores[kb], values + static_cast<std::uint64_t>(2048 * kb >> 4), true);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(o);
      if (skip != 0.0f) add_skip(o, of_state.v.x, skip);
      arrive(shared.state_empty[at.stage]);
      write_output(o, c);
      for (int i = 0; i < kFollowers; ++i) at.advance();
    }
  }

  // ---- all

  __device__ __forceinline__ void make_barriers() const {
    constexpr int kStateWarps = 4 * Groups;
    constexpr int kOutputWarps = 4;
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(shared.state_full[stage], kGroupThreads);
      ptx::mbarrier_init(shared.state_empty[stage], kStateWarps + kOutputWarps);
      ptx::mbarrier_init(shared.output_full[stage], kGroupThreads);
      ptx::mbarrier_init(shared.output_empty[stage], kOutputWarps);
    }
    for (int i = 0; i < kFollowers; ++i) {
      ptx::mbarrier_init(shared.s_full[i], kStateWarps);
      ptx::mbarrier_init(shared.s_empty[i], kOutputWarps);
    }
    ptx::mbarrier_init_fence();
  }

  __device__ void run() {
    const int role = static_cast<int>(threadIdx.x) / kGroupThreads;
    if (threadIdx.x == 0) make_barriers();
    __syncthreads();
    if (role == 0) {
      ptx::registers_give<kProducerRegisters>();
      produce();
    } else if (role <= Groups) {
      ptx::registers_take<kStateRegisters>();
      walk();
    } else {
      if constexpr (kFourGroups) {
        ptx::registers_take<kOutputRegisters>();
      } else {
        ptx::registers_give<kOutputRegisters>();
      }
      follow(role - 1 - Groups);
    }
  }
};

/// Grid: sequences, value heads, slices, the last running fastest.
template <int KeyColumns, int Groups>
__global__ void __launch_bounds__(PlainScan<KeyColumns, Groups>::kThreads, 1)
    plain_scan_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = PlainScan<KeyColumns, Groups>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<1024>())).run();
}

}  // namespace attune::kernels::linear::sm90
