// The chain over a sequence's chunks (layer kernels), for one head and 64 value columns a
// warpgroup: columns of the state never meet.
//
//   X = V - e^G K S        D = T X              (delta rule; without it D = beta V)
//   O = e^G Q S + P D      S <- e^G_end S + (e^(G_end - G) K)^T D
//
// Everything is computed transposed, as value columns by tokens or by keys: then S^T, X^T and D^T,
// once packed to bf16, are in registers what the next product wants as its left operand, and
// nothing of the chain passes through shared memory or a barrier. Q, K, V, T and P are right
// operands, read where a producer warpgroup's copies put them, some chunks ahead. Without delta
// rule the producers also compute P; with it, and one warpgroup a block, they write O.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/linear/sm90/gates.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::linear::sm90 {

enum class Form : std::uint8_t {
  plain,             ///< no delta rule: mamba2, lightning
  delta,             ///< gdn
  delta_by_channel,  ///< kda: k and q come with their decay
};

template <Form kForm, int KeyColumns, int Groups>
struct Scan {
  static constexpr int kGroupThreads = 128;
  static constexpr int kThreads = (Groups + 1) * kGroupThreads;
  static constexpr bool kDelta = kForm != Form::plain;
  static constexpr bool kByChannel = kForm == Form::delta_by_channel;
  static constexpr int kPanels = KeyColumns / 64;  ///< tiles of 64 columns side by side
  static constexpr int kHalves = KeyColumns / 128;
  static constexpr int kTile = kChunk * 64;  ///< elements
  /// Whether producers write O to memory. That takes it off a lone warpgroup's chain; where two
  /// share the tensor cores, or where producers compute P, consumers have more time than they.
  static constexpr bool kHandsOver = kDelta && Groups == 1;
  /// As many as 227 KiB hold.
  static constexpr int kStages = KeyColumns == 128 && !(kByChannel && Groups == 2) ? 3 : 2;

  template <int Tiles>
  struct alignas(1024) Panels {
    Half x[Tiles * kTile];
  };
  struct None {};
  template <bool Present, int Tiles>
  using Some = std::conditional_t<Present, Panels<Tiles>, None>;

  struct Stage {
    Panels<kPanels> q;
    Panels<kPanels> k;
    Some<kByChannel, kPanels> k_until;
    Panels<Groups> v;
    Some<kDelta, 1> solve;
    Panels<1> scores;
  };
  static constexpr int kGateFloats = kByChannel ? KeyColumns : kDelta ? 2 * kChunk : 4 * kChunk;
  struct Shared {
    Stage stages[kStages];
    Some<kHandsOver, Groups> output;
    alignas(16) float gates[kStages][kGateFloats];
    ptx::Mbarrier full[kStages];
    ptx::Mbarrier scored[kStages];  ///< plain: P is there
    ptx::Mbarrier empty[kStages];
    ptx::Mbarrier output_full;
    ptx::Mbarrier output_empty;
  };

  /// A place in the ring of stages.
  struct Place {
    int stage = 0;
    std::uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
      if (++stage < kStages) return;
      stage = 0;
      parity ^= 1;
    }
  };

  const PromptParams& d;
  const Params& p;
  Shared& shared;
  Sequence sequence;
  int head;
  int key_head;
  int first_column;  ///< of the block
  int thread;        ///< of the warpgroup

  __device__ Scan(const PromptParams& params, Shared& s)
      : d(params), p(params.p), shared(s), thread(static_cast<int>(threadIdx.x) % kGroupThreads) {
    const int slices = d.value_columns / (64 * Groups);
    const int work = static_cast<int>(blockIdx.x);
    sequence = d.sequences[work / slices / p.num_v_heads];
    head = work / slices % p.num_v_heads;
    key_head = head / (p.num_v_heads / d.key_heads);
    first_column = work % slices * 64 * Groups;
  }

  // ---- producers

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

  [[nodiscard]] __device__ __forceinline__ int count_of(int c) const {
    return min(kChunk, sequence.num_tokens - c * kChunk);
  }

  __device__ __forceinline__ void fetch(int stage, int c) const {
    Stage& s = shared.stages[stage];
    const std::int64_t token = sequence.first_token + c * kChunk;
    const int count = count_of(c);
    fetch_keys(s.k.x, d.k, token, count);
    fetch_keys(s.q.x, d.q, token, count);
    if constexpr (kByChannel) fetch_keys(s.k_until.x, d.k_until, token, count);
    fetch_panels<Groups>(
        s.v.x, d.v.data + token * d.v.token_stride + head * d.v.head_stride + first_column,
        d.v.token_stride, count);
    const std::int64_t chunk_head =
        static_cast<std::int64_t>(sequence.first_chunk + c) * p.num_v_heads + head;
    if constexpr (kDelta) {
      fetch_lower_blocks(s.solve.x, d.solve + chunk_head * kChunk * kChunk);
      fetch_lower_blocks(s.scores.x, d.scores + chunk_head * kChunk * kChunk);
    }
    const float* gates = kByChannel ? d.end_decay + chunk_head * KeyColumns
                                    : d.gates + chunk_head * kNumGates * kChunk;
    if (thread < kGateFloats / 4)
      ptx::cp_async_16(shared.gates[stage] + 4 * thread, gates + 4 * thread);
    ptx::cp_async_mbarrier_arrive(shared.full[stage]);
  }

  /// Without delta rule: P with beta in its columns. A warp has 16 tokens.
  __device__ __forceinline__ void score(const Place& at) const {
    Stage& s = shared.stages[at.stage];
    ptx::mbarrier_wait(shared.full[at.stage], at.parity);
    ptx::fence_proxy_async();
    float qk[kChunk / 2];
    const std::uint64_t q = ptx::wgmma_descriptor(s.q.x);
    const std::uint64_t k = ptx::wgmma_descriptor(s.k.x);
    ptx::wgmma_pin(qk);
    ptx::wgmma_fence();
#pragma unroll
    for (int ks = 0; ks < KeyColumns / 16; ++ks)
      ptx::wgmma_ss<__nv_bfloat16, kChunk, ptx::Major::k, ptx::Major::k>(qk, q + key_step(ks),
                                                                         k + key_step(ks), ks > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(qk);
    const float* log_decay = shared.gates[at.stage] + kLogDecay * kChunk;
    const float* beta = shared.gates[at.stage] + kBeta * kChunk;
    const int g = thread % 32 / 4;
    const int j = thread % 4;
    const int first = thread / 32 * 16;
    const float end[2] = {kLog2E * log_decay[first + g], kLog2E * log_decay[first + g + 8]};
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (8 * n > first + 15) continue;  // zeros from the start
      const int column = 8 * n + 2 * j;
      const float2 begin = *reinterpret_cast<const float2*>(log_decay + column);
      const float2 factor = *reinterpret_cast<const float2*>(beta + column);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first + g + 8 * h;
        // Above the diagonal the decay may be infinite, and is not used.
        const float x =
            qk[4 * n + 2 * h] * factor.x * ptx::exp2_approx(fmaf(begin.x, -kLog2E, end[h]));
        const float y =
            qk[4 * n + 2 * h + 1] * factor.y * ptx::exp2_approx(fmaf(begin.y, -kLog2E, end[h]));
        put_pair<64>(s.scores.x, row, column, column <= row ? x : 0.0f,
                     column + 1 <= row ? y : 0.0f);
      }
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(shared.scored[at.stage]);
  }

  /// O of chunk c to memory.
  __device__ __forceinline__ void write_output(int c) const {
    ptx::mbarrier_wait(shared.output_full, static_cast<std::uint32_t>(c) % 2);
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
        if (row + pass < count) {
          if (d.wide_o && first + 8 <= p.dv) {
            *reinterpret_cast<uint4*>(to) = eight;
          } else {
            const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (int e = 0; e < 8; ++e)
              if (first + e < p.dv) to[e] = static_cast<Half>(words[e / 2] >> (e % 2 * 16));
          }
        }
        to += kGroupThreads / 8 * p.o_row;
      }
    }
    ptx::mbarrier_arrive(shared.output_empty);
  }

  __device__ void produce() const {
    Place at;
    at.parity = 1;
    Place scored;
    constexpr int kBehind = kHandsOver ? kStages : kDelta ? 0 : 1;
    for (int c = 0; c < sequence.num_chunks + kBehind; ++c) {
      if (c < sequence.num_chunks) {
        ptx::mbarrier_wait(shared.empty[at.stage], at.parity);
        fetch(at.stage, c);
        at.advance();
      }
      if constexpr (kHandsOver) {
        // The chunk whose stage has just been filled again is done.
        if (c >= kStages) write_output(c - kStages);
      } else if constexpr (!kDelta) {
        if (c > 0) {
          score(scored);
          scored.advance();
        }
      }
    }
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
  /// sum (+)= left (rows of tile)^T over tokens.
  static __device__ __forceinline__ void over_tokens(Tokens& sum, const Packed& left,
                                                     const Half* tile, bool accumulate) {
    const std::uint64_t right = ptx::wgmma_descriptor(tile);
#pragma unroll
    for (int kb = 0; kb < kChunk / 16; ++kb)
      ptx::wgmma_rs<__nv_bfloat16, kChunk, ptx::Major::k>(
          sum, left[kb], right + static_cast<std::uint64_t>(32 * kb >> 4), accumulate || kb > 0);
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

  // ---- consumers: thread's value columns are `column` and 8 more, its tokens or keys 8 n + 2 j
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
      gates[n] = kByChannel ? make_float2(1.0f, 1.0f) : gate_of(stage, gate, n);
  }

  /// V^T.
  __device__ __forceinline__ void load_values(Packed& values, int stage) const {
    const Half* v = shared.stages[stage].v.x + group() * kTile;
#pragma unroll
    for (int kb = 0; kb < kChunk / 16; ++kb)
      load_a_trans<64>(values[kb], v, thread / 32 * 16, 16 * kb);
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
    if constexpr (!kByChannel) {
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
    const float one = kByChannel ? 0.0f : gates[kSince * kChunk + kChunk - 1];
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float2 decay =
          kByChannel
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

  static __device__ __forceinline__ void add_skip(Tokens& o, const Packed& values, float skip) {
#pragma unroll
    for (int kb = 0; kb < kChunk / 16; ++kb) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int at = 4 * (2 * kb + r / 2) + 2 * (r % 2);
        o[at] += skip * low_of(values[kb][r]);
        o[at + 1] += skip * high_of(values[kb][r]);
      }
    }
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

  template <class Visit>
  __device__ __forceinline__ void each_of_state(Visit visit) const {
    float* base =
        p.state + sequence.slot * p.state_slot + static_cast<std::int64_t>(head) * p.dv * p.dk;
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

  static __device__ __forceinline__ void pin(State& state) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) ptx::wgmma_pin(state[half]);
  }

  __device__ __forceinline__ void wait_for(const Place& at) const {
    ptx::mbarrier_wait(shared.full[at.stage], at.parity);
    ptx::fence_proxy_async();
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
    load_values(values, 0);
    load_gates(since, 0, kSince);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(x);
#pragma unroll 1
    for (int c = 0; c < sequence.num_chunks; ++c) {
      const int stage = at.stage;
      const Stage& s = shared.stages[stage];
      ptx::wgmma_fence();
      over_keys<0, 4>(o, packed, s.q.x, false);
      subtract(values, x, since);
      ptx::wgmma_fence();
      over_tokens(x, values, s.solve.x, false);
      over_keys<4, 8>(o, packed, s.q.x, true);
      decay_half(state[0], 0, stage);
      TokenGates until;
      load_gates(until, stage, kUntil);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(x);
      Packed written;
      Packed kept;
      if constexpr (kByChannel) {
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
      load_values(values, at.stage);
      load_gates(since, at.stage, kSince);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(o);
      release(stage);
      finish_output(o, c);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(x);
    }
  }

  __device__ __forceinline__ void walk_plain(State& state) const {
    const float skip = p.d_skip != nullptr ? p.d_skip[head] : 0.0f;
    PackedHalf packed;
    Tokens o;
    Place at;
#pragma unroll 1
    for (int c = 0; c < sequence.num_chunks; ++c) {
      const int stage = at.stage;
      const Stage& s = shared.stages[stage];
      wait_for(at);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        if (half > 0) {
          ptx::wgmma_wait<0>();
          ptx::wgmma_pin(o);
        }
        pack_half(packed, state[half]);
        decay_half(state[half], half, stage);
        ptx::wgmma_fence();
        over_keys(o, packed, s.q.x + 2 * half * kTile, half > 0);
      }
      Packed values;
      Packed until;
      load_values(values, stage);
      scale_values(until, values, stage);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(o);
      TokenGates since;
      load_gates(since, stage, kSince);
      scale(o, since);
      ptx::mbarrier_wait(shared.scored[stage], at.parity);
      ptx::wgmma_fence();
      into_state(state, until, s.k.x);
      over_tokens(o, values, s.scores.x, true);
      ptx::wgmma_wait<0>();
      pin(state);
      ptx::wgmma_pin(o);
      add_skip(o, values, skip);
      release(stage);
      finish_output(o, c);
      at.advance();
    }
  }

  __device__ void consume() const {
    State state;
    each_of_state([&](int half, int i, const float* at, bool inside) {
      state[half][i] = inside ? *at : 0.0f;
    });
    if constexpr (kDelta) {
      walk_delta(state);
    } else {
      walk_plain(state);
    }
    each_of_state([&](int half, int i, float* to, bool inside) {
      if (inside) *to = state[half][i];
    });
  }

  __device__ void run() {
    const int all = static_cast<int>(threadIdx.x);
    if (all == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        ptx::mbarrier_init(shared.full[stage], kGroupThreads);
        ptx::mbarrier_init(shared.scored[stage], kGroupThreads);
        ptx::mbarrier_init(shared.empty[stage], 4 * Groups);
      }
      ptx::mbarrier_init(shared.output_full, 4 * Groups);
      ptx::mbarrier_init(shared.output_empty, kGroupThreads);
      ptx::mbarrier_init_fence();
    }
    // T and P come without their upper blocks, which nobody overwrites.
    for (int stage = 0; stage < kStages; ++stage) {
      for (int i = all; i < kTile / 8; i += kThreads) {
        if constexpr (kDelta)
          reinterpret_cast<uint4*>(shared.stages[stage].solve.x)[i] = make_uint4(0, 0, 0, 0);
        reinterpret_cast<uint4*>(shared.stages[stage].scores.x)[i] = make_uint4(0, 0, 0, 0);
      }
    }
    __syncthreads();
    if (all < kGroupThreads) {
      if constexpr (Groups == 2) ptx::registers_give<kDelta ? 56 : 96>();
      produce();
    } else {
      if constexpr (Groups == 2) ptx::registers_take<kDelta ? 224 : 208>();
      consume();
    }
  }
};

/// Grid: sequences, value heads, slices, the last running fastest.
template <Form kForm, int KeyColumns, int Groups>
__global__ void __launch_bounds__(Scan<kForm, KeyColumns, Groups>::kThreads, 1)
    scan_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = Scan<kForm, KeyColumns, Groups>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<1024>())).run();
}

}  // namespace attune::kernels::linear::sm90
