// The chain over a sequence's chunks (layer kernels), for one head and one slice of the state's
// value columns: columns never meet, so slices are blocks of their own.
//
//   X = V - e^G K S        D = T X              (delta rule; without it D = beta V)
//   O = e^G Q S + P D      S <- e^G_end S + (e^(G_end - G) K)^T D
//
// S stays in registers: warp w accumulates key rows 16 w … 16 w + 15 in fp32, and leaves a bf16
// copy in shared memory for the next chunk's products. Between two barriers of the block
//   warps 0 - 3: K S, X, D of 16 tokens each      (without delta rule: P)
//   warps 4 - 7: Q S of 16 tokens each
// and behind the second one P D, and S by all eight. The next chunk's tiles arrive meanwhile.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/gates.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::linear::sm90 {

enum class Form : std::uint8_t {
  plain,             ///< no delta rule: mamba2, lightning
  delta,             ///< gdn
  delta_by_channel,  ///< kda: k and q come with their decay
};

template <Form kForm, int KeyColumns, int Slice>
struct Scan {
  static constexpr int kThreads = 256;
  static constexpr int kHalf = 128;  ///< threads of a role
  static constexpr int kChainBarrier = 1;
  static constexpr bool kDelta = kForm != Form::plain;
  static constexpr bool kByChannel = kForm == Form::delta_by_channel;
  static constexpr int kKeyTiles = KeyColumns / 128;  ///< of 16 rows, a warp's part of S
  static constexpr int kColumns = Slice / 8;

  template <bool Present, int Count>
  struct alignas(128) Array {
    Half x[Present ? Count : 1];
  };
  struct Stage {
    Array<true, kChunk * KeyColumns> q;
    Array<true, kChunk * KeyColumns> k;
    Array<kByChannel, kChunk * KeyColumns> k_until;
    Array<true, kChunk * Slice> v;
    Array<kDelta, kChunk * kChunk> solve;
    Array<kDelta, kChunk * kChunk> scores;
    alignas(16) float gates[kByChannel ? KeyColumns : kNumGates * kChunk];
  };
  struct Shared {
    Stage stages[2];
    Array<true, KeyColumns * Slice> state;
    Array<kDelta, kChunk * Slice> x;
    Array<kDelta, kChunk * Slice> d;
    Array<!kByChannel, kChunk * Slice> d_until;  ///< D times the decay until the chunk's end
    Array<!kDelta, kChunk * kChunk> own_scores;
  };

  using Columns = float[kColumns][4];

  const PromptParams& d;
  const Params& p;
  Shared& shared;
  Sequence sequence;
  int head;
  int key_head;
  int first_column;
  int warp;
  int row0;  ///< first of the 16 tokens this warp works on
  int g;
  int j;

  __device__ Scan(const PromptParams& params, Shared& s) : d(params), p(params.p), shared(s) {
    const int slices = d.value_columns / Slice;
    const int work = static_cast<int>(blockIdx.x);
    sequence = d.sequences[work / slices / p.num_v_heads];
    head = work / slices % p.num_v_heads;
    key_head = head / (p.num_v_heads / d.key_heads);
    first_column = work % slices * Slice;
    warp = static_cast<int>(threadIdx.x / 32);
    row0 = warp % 4 * 16;
    g = lane_id() / 4;
    j = lane_id() % 4;
  }

  __device__ void fetch(Stage& s, int chunk_index) const {
    const Chunk chunk = d.chunks[chunk_index];
    const int thread = static_cast<int>(threadIdx.x);
    const auto keys = [&](Half* tile, const RowsOf& rows) {
      fetch_rows<KeyColumns, kThreads>(
          tile, rows.data + chunk.first_token * rows.token_stride + key_head * rows.head_stride,
          rows.token_stride, chunk.count, thread);
    };
    keys(s.q.x, d.q);
    keys(s.k.x, d.k);
    if constexpr (kByChannel) keys(s.k_until.x, d.k_until);
    fetch_rows<Slice, kThreads>(
        s.v.x,
        d.v.data + chunk.first_token * d.v.token_stride + head * d.v.head_stride + first_column,
        d.v.token_stride, chunk.count, thread);
    const std::int64_t chunk_head = static_cast<std::int64_t>(chunk_index) * p.num_v_heads + head;
    if constexpr (kDelta) {
      fetch_lower<kThreads>(s.solve.x, d.solve + chunk_head * kChunk * kChunk, thread);
      fetch_lower<kThreads>(s.scores.x, d.scores + chunk_head * kChunk * kChunk, thread);
    }
    constexpr int kGates = kByChannel ? KeyColumns : kNumGates * kChunk;
    const float* gates = (kByChannel ? d.end_decay : d.gates) + chunk_head * kGates;
    if (thread < kGates / 4) ptx::cp_async_16(s.gates + 4 * thread, gates + 4 * thread);
  }

  // ---- products

  /// sum += rows row0 … of `left` (blocks 0 … kb - 1 of 16 columns) times `right`.
  template <int LeftColumns>
  __device__ __forceinline__ void multiply_rows(Columns& sum, const Half* left, const Half* right,
                                                int blocks) const {
#pragma unroll 4
    for (int kb = 0; kb < blocks; ++kb) {
      std::uint32_t a[4];
      load_a<LeftColumns>(a, left, row0, 16 * kb);
#pragma unroll
      for (int n = 0; n < kColumns / 2; ++n) {
        std::uint32_t b[4];
        load_b_trans<Slice>(b, right, 16 * kb, 16 * n);
        multiply(sum[2 * n], a, b[0], b[1]);
        multiply(sum[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  [[nodiscard]] __device__ __forceinline__ float since(const Stage& s, int row) const {
    return kByChannel ? 1.0f : s.gates[kSince * kChunk + row];
  }

  /// Warps 0 - 3: D of this warp's tokens.
  __device__ __forceinline__ void solve(const Stage& s) {
    Columns predicted{};
    multiply_rows<KeyColumns>(predicted, s.k.x, shared.state.x, KeyColumns / 16);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row0 + g + 8 * h;
        const int column = 8 * n + 2 * j;
        const std::uint32_t v = pair_at<Slice>(s.v.x, row, column);
        const float factor = since(s, row);
        put_pair<Slice>(shared.x.x, row, column, low_of(v) - factor * predicted[n][2 * h],
                        high_of(v) - factor * predicted[n][2 * h + 1]);
      }
    }
    ptx::named_barrier_sync(kChainBarrier, kHalf);
    Columns written{};
    multiply_rows<kChunk>(written, s.solve.x, shared.x.x, row0 / 16 + 1);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row0 + g + 8 * h;
        const int column = 8 * n + 2 * j;
        const float a = written[n][2 * h];
        const float b = written[n][2 * h + 1];
        put_pair<Slice>(shared.d.x, row, column, a, b);
        if constexpr (!kByChannel) {
          const float factor = s.gates[kUntil * kChunk + row];
          put_pair<Slice>(shared.d_until.x, row, column, a * factor, b * factor);
        }
      }
    }
  }

  /// Warps 0 - 3, without delta rule: P with beta in its columns, and beta V until the chunk's end.
  __device__ __forceinline__ void score(const Stage& s) {
    float qk[kChunk / 8][4] = {};
#pragma unroll 4
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      std::uint32_t a[4];
      load_a<KeyColumns>(a, s.q.x, row0, 16 * ks);
#pragma unroll
      for (int nb = 0; nb < kChunk / 16; ++nb) {
        if (16 * nb > row0) continue;
        std::uint32_t b[4];
        load_b<KeyColumns>(b, s.k.x, 16 * nb, 16 * ks);
        multiply(qk[2 * nb], a, b[0], b[1]);
        multiply(qk[2 * nb + 1], a, b[2], b[3]);
      }
    }
    const float* log_decay = s.gates + kLogDecay * kChunk;
    const float* beta = s.gates + kBeta * kChunk;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (8 * n > row0 + 15) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row0 + g + 8 * h;
        const int column = 8 * n + 2 * j;
        float x[2];
#pragma unroll
        for (int e = 0; e < 2; ++e)
          x[e] = column + e <= row ? qk[n][2 * h + e] * beta[column + e] *
                                         exp_approx(log_decay[row] - log_decay[column + e])
                                   : 0.0f;
        put_pair<kChunk>(shared.own_scores.x, row, column, x[0], x[1]);
      }
    }
    for (int i = static_cast<int>(threadIdx.x); i < kChunk * Slice / 2; i += kHalf) {
      const int row = i / (Slice / 2);
      const int column = i % (Slice / 2) * 2;
      const std::uint32_t v = pair_at<Slice>(s.v.x, row, column);
      const float factor = beta[row] * s.gates[kUntil * kChunk + row];
      put_pair<Slice>(shared.d_until.x, row, column, low_of(v) * factor, high_of(v) * factor);
    }
  }

  /// Warps 4 - 7.
  __device__ __forceinline__ void read_state(const Stage& s, Columns& o) const {
    multiply_rows<KeyColumns>(o, s.q.x, shared.state.x, KeyColumns / 16);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[n][e] *= since(s, row0 + g + 8 * (e / 2));
    }
  }

  __device__ __forceinline__ void finish_output(const Stage& s, Columns& o, int chunk_index) const {
    multiply_rows<kChunk>(o, kDelta ? s.scores.x : shared.own_scores.x, kDelta ? shared.d.x : s.v.x,
                          row0 / 16 + 1);
    const Chunk chunk = d.chunks[chunk_index];
    const float skip = !kDelta && p.d_skip != nullptr ? p.d_skip[head] : 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row0 + g + 8 * h;
      if (row >= chunk.count) continue;
      const std::int64_t at = (chunk.first_token + row) * p.o_row +
                              static_cast<std::int64_t>(head) * p.dv + first_column;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int column = 8 * n + 2 * j;
        float x = o[n][2 * h];
        float y = o[n][2 * h + 1];
        if constexpr (!kDelta) {
          const std::uint32_t v = pair_at<Slice>(s.v.x, row, column);
          x += skip * low_of(v);
          y += skip * high_of(v);
        }
        write_pair(at + column, p.dv - first_column - column, x, y);
      }
    }
  }

  __device__ __forceinline__ void write_pair(std::int64_t at, int left, float x, float y) const {
    if (d.wide_o && left >= 2) {
      if (p.bf16) {
        *reinterpret_cast<std::uint32_t*>(static_cast<Half*>(p.o) + at) = pack(x, y);
      } else {
        *reinterpret_cast<float2*>(static_cast<float*>(p.o) + at) = make_float2(x, y);
      }
      return;
    }
    if (left >= 1) write(p.o, p.bf16, at, x);
    if (left >= 2) write(p.o, p.bf16, at + 1, y);
  }

  // ---- the state

  __device__ __forceinline__ int key_row(int tile, int h) const {
    return 16 * (warp + 8 * tile) + g + 8 * h;
  }

  template <class Visit>
  __device__ __forceinline__ void each_of_state(Visit visit) const {
    float* base =
        p.state + sequence.slot * p.state_slot + static_cast<std::int64_t>(head) * p.dv * p.dk;
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = key_row(tile, e / 2);
          const int column = first_column + 8 * n + 2 * j + e % 2;
          visit(tile, n, e, base + static_cast<std::int64_t>(column) * p.dk + row,
                row < p.dk && column < p.dv);
        }
      }
    }
  }

  __device__ __forceinline__ void share_state(const Columns (&state)[kKeyTiles]) {
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          put_pair<Slice>(shared.state.x, key_row(tile, h), 8 * n + 2 * j, state[tile][n][2 * h],
                          state[tile][n][2 * h + 1]);
      }
    }
  }

  __device__ __forceinline__ void advance(const Stage& s, Columns (&state)[kKeyTiles]) {
    const Half* keys = kByChannel ? s.k_until.x : s.k.x;
    const Half* written = kByChannel ? shared.d.x : shared.d_until.x;
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      float decay[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        decay[h] = kByChannel ? s.gates[key_row(tile, h)] : s.gates[kSince * kChunk + kChunk - 1];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) state[tile][n][e] *= decay[e / 2];
      }
    }
#pragma unroll
    for (int kb = 0; kb < kChunk / 16; ++kb) {
      std::uint32_t a[kKeyTiles][4];
#pragma unroll
      for (int tile = 0; tile < kKeyTiles; ++tile)
        load_a_trans<KeyColumns>(a[tile], keys, 16 * (warp + 8 * tile), 16 * kb);
#pragma unroll
      for (int n = 0; n < kColumns / 2; ++n) {
        std::uint32_t b[4];
        load_b_trans<Slice>(b, written, 16 * kb, 16 * n);
#pragma unroll
        for (int tile = 0; tile < kKeyTiles; ++tile) {
          multiply(state[tile][2 * n], a[tile], b[0], b[1]);
          multiply(state[tile][2 * n + 1], a[tile], b[2], b[3]);
        }
      }
    }
  }

  __device__ void run() {
    fetch(shared.stages[0], sequence.first_chunk);
    ptx::cp_async_commit();
    Columns state[kKeyTiles];
    each_of_state([&](int tile, int n, int e, const float* at, bool inside) {
      state[tile][n][e] = inside ? *at : 0.0f;
    });
    share_state(state);
#pragma unroll 1
    for (int c = 0; c < sequence.num_chunks; ++c) {
      const int index = sequence.first_chunk + c;
      ptx::cp_async_wait<0>();
      // This chunk's tiles and the state are there, and nobody reads the other stage any more.
      __syncthreads();
      if (c + 1 < sequence.num_chunks) fetch(shared.stages[(c + 1) % 2], index + 1);
      ptx::cp_async_commit();
      const Stage& s = shared.stages[c % 2];
      Columns o{};
      if (warp >= 4) {
        read_state(s, o);
      } else if constexpr (kDelta) {
        solve(s);
      } else {
        score(s);
      }
      __syncthreads();
      if (warp >= 4) finish_output(s, o, index);
      advance(s, state);
      share_state(state);
    }
    each_of_state([&](int tile, int n, int e, float* at, bool inside) {
      if (inside) *at = state[tile][n][e];
    });
  }
};

/// Grid: sequences, value heads, slices, the last running fastest.
template <Form kForm, int KeyColumns, int Slice>
__global__ void __launch_bounds__(Scan<kForm, KeyColumns, Slice>::kThreads)
    scan_kernel(const __grid_constant__ PromptParams params) {
  using Kernel = Scan<kForm, KeyColumns, Slice>;
  Kernel(params, *reinterpret_cast<typename Kernel::Shared*>(ptx::dynamic_shared<128>())).run();
}

}  // namespace attune::kernels::linear::sm90
