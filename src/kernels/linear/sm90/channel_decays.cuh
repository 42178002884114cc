// Decays by channel (kda) in the products of a chunk (layer kernels): with G the log2 of the decay
// summed from the chunk's begin, per channel,
//   s_ij(x) = sum over channels of x_i k_j 2^(G_i - G_j)
// has to be split between the operands. Halves of 32 tokens, L = G since the half's begin, M half
// of what the half loses:
//   rows    x_i 2^(L_i - M)                 of either half
//   columns k_j 2^(M - L_j)                 for rows of the same half
//           k_j 2^(G_31 - G_j + M)          of the first half, for rows of the second, whose M it
//           is
// which stays finite where no M is beyond 2^kStrong. Elsewhere blocks of 16
// tokens get factors of their own, fragment by fragment, and if even a block decays that much its
// diagonal pairs are taken one by one.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/gates.cuh"
#include "kernels/linear/sm90/products.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::linear::sm90 {

template <int KeyColumns>
struct ChannelDecays {
  static constexpr int kHalf = kChunk / 2;
  static constexpr int kThreads = 2 * kScoreThreads;  ///< one warpgroup k k, one q k
  static constexpr int kParts = kThreads / (KeyColumns / 2);
  static constexpr int kPart = kChunk / kParts;  ///< tokens of a thread
  static constexpr int kColumnRows = kChunk + kHalf;
  /// Both factors of every pair stay finite. The safe gate allows 16 * 5 / ln 2 a block.
  static constexpr float kStrong = 116.2f;
  static_assert(kParts == 4, "a thread has two channels of a quarter");
  static_assert(KeyColumns == 2 * kChunk, "as many decays as of tokens");

  /// Tiles of 64 columns side by side.
  struct Shared {
    Half q[kChunk * KeyColumns];
    Half k[kChunk * KeyColumns];
    union {
      /// Of a tile all, then those of the first half for rows of the second.
      Half columns[kColumnRows * KeyColumns];
      float g[kChunk][KeyColumns + 8];  ///< of strong decays; padded against bank conflicts
    };
    alignas(16) float part_sum[kParts][KeyColumns];
  };

  const PromptParams& d;
  const Params& p;
  Shared& shared;
  const Chunk& chunk;
  int head;
  std::int64_t chunk_head;

  /// Of its warpgroup: whose rows it has.
  static __device__ __forceinline__ int warp() { return score_thread() / 32; }
  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }

  /// What the warpgroup's products have in their rows.
  [[nodiscard]] __device__ __forceinline__ const Half* rows() const {
    return thread() < kScoreThreads ? shared.k : shared.q;
  }

  // ---- a thread's two channels and a part of the tokens

  static __device__ __forceinline__ int part() { return thread() / (KeyColumns / 2); }
  static __device__ __forceinline__ int channel() { return thread() % (KeyColumns / 2) * 2; }

  /// Log2 of the decay of the thread's channels since its part's begin, after each token.
  struct Sums {
    float2 of[kPart];
  };

  /// Two raw gates a token. Tokens and channels that do not exist have -inf, which is no decay.
  __device__ __forceinline__ void load_gates(std::uint32_t (&raw)[kPart]) const {
    constexpr Half kNone = 0xff80;
    const int c = channel();
    const int count = chunk.count - part() * kPart;
    const auto* from = static_cast<const Half*>(p.gate.data) +
                       (chunk.first_token + part() * kPart) * p.gate.row +
                       static_cast<std::int64_t>(head) * p.dk + c;
    if (d.wide_gate && count >= kPart && p.dk == KeyColumns) {
#pragma unroll
      for (int t = 0; t < kPart; ++t) {
        raw[t] = *reinterpret_cast<const std::uint32_t*>(from);
        from += p.gate.row;
      }
      return;
    }
#pragma unroll
    for (int t = 0; t < kPart; ++t) {
      const Half low = t < count && c < p.dk ? from[0] : kNone;
      const Half high = t < count && c + 1 < p.dk ? from[1] : kNone;
      raw[t] = low | static_cast<std::uint32_t>(high) << 16;
      from += p.gate.row;
    }
  }

  /// ln(1 + e^x) / ln 2 for x / ln 2. Where e^x is beyond fp32 it is x; where it is below 2^-23 the
  /// sum loses it, a millionth of what bf16 sees.
  static __device__ __forceinline__ float softplus2(float x) {
    return fmaxf(__log2f(1.0f + ptx::exp2_approx(fminf(x, 126.0f))), x);
  }

  /// Needs nothing from shared memory.
  __device__ __forceinline__ void sum_gates(Sums& sums) const {
    const int c = channel();
    const std::int64_t first = static_cast<std::int64_t>(head) * p.dk;
    const float bias[2] = {p.dt_bias[first + min(c, p.dk - 1)],
                           p.dt_bias[first + min(c + 1, p.dk - 1)]};
    const float a_log = p.a_log[head];
    std::uint32_t raw[kPart];
    load_gates(raw);
    const float a = exp_approx(a_log);
    float2 sum = make_float2(0.0f, 0.0f);
    if (p.gate_lower_bound < 0.0f) {
      const float bound = p.gate_lower_bound * kLog2E;
#pragma unroll
      for (int t = 0; t < kPart; ++t) {
        sum.x += bound * sigmoid_approx(a * (low_of(raw[t]) + bias[0]));
        sum.y += bound * sigmoid_approx(a * (high_of(raw[t]) + bias[1]));
        sums.of[t] = sum;
      }
      return;
    }
    const float bias2[2] = {kLog2E * bias[0], kLog2E * bias[1]};
#pragma unroll
    for (int t = 0; t < kPart; ++t) {
      sum.x -= a * softplus2(kLog2E * low_of(raw[t]) + bias2[0]);
      sum.y -= a * softplus2(kLog2E * high_of(raw[t]) + bias2[1]);
      sums.of[t] = sum;
    }
  }

  static __device__ __forceinline__ float2 exp2_of(float2 x) {
    return make_float2(ptx::exp2_approx(x.x), ptx::exp2_approx(x.y));
  }
  static __device__ __forceinline__ float2 times(float2 x, float2 y) {
    return make_float2(x.x * y.x, x.y * y.y);
  }
  static __device__ __forceinline__ float2 unpacked(std::uint32_t pair) {
    return make_float2(low_of(pair), high_of(pair));
  }
  static __device__ __forceinline__ std::uint32_t packed(float2 x) { return pack(x.x, x.y); }

  /// The operands above in shared memory, and for the products with the state, to memory: q and k
  /// with their decay since the chunk's begin, k with its decay until the end. `before`: of the
  /// parts of the thread's half that precede its own.
  __device__ __forceinline__ void decay_rows(const Sums& sums, float2 before, float2 first_half,
                                             float2 second_half) const {
    const bool second = part() >= kParts / 2;
    const float2 own = second ? second_half : first_half;
    const float2 middle = make_float2(0.5f * own.x, 0.5f * own.y);
    const float2 begin = make_float2(before.x - middle.x, before.y - middle.y);
    const float2 through_middle = exp2_of(middle);
    const float2 rest = exp2_of(second ? make_float2(0.0f, 0.0f) : second_half);
    const float2 since_begin =
        times(exp2_of(second ? first_half : make_float2(0.0f, 0.0f)), through_middle);
    const float2 second_middle = exp2_of(make_float2(0.5f * second_half.x, 0.5f * second_half.y));
    // In memory rows lie as they do here, and those beyond the chunk's tokens stay zeros. Rows of
    // tiles are whole 128 bytes: pieces turn by bits of a place in bytes.
    const auto word = [](Half* tiles, unsigned place, int t) -> std::uint32_t& {
      return *reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(tiles) + t * 128 +
                                               (place ^ static_cast<unsigned>(t % 8 * 16)));
    };
    const auto place_in = [](int tile_rows) {
      return static_cast<unsigned>((channel() / 64 * tile_rows + part() * kPart) * 128 +
                                   channel() % 64 * 2);
    };
    const unsigned row_place = place_in(kChunk);
    const unsigned column_place = place_in(kColumnRows);
    Half* const q_rows = d.q.tiles(chunk.index, head);
    Half* const k_rows = d.k.tiles(chunk.index, head);
    Half* const until_rows = d.k_until.tiles(chunk.index, head);
    // Some rows are read before the first of them is written: what is written might be what is
    // read next, for all the compiler knows. Rows eight apart lie alike.
    constexpr int kAtOnce = 4;
    constexpr auto row_of = [](int first, int i) { return first + i / 2 + i % 2 * 8; };
    static_assert(kPart == 16);
#pragma unroll
    for (int first = 0; first < kPart / 2; first += kAtOnce / 2) {
      std::uint32_t q[kAtOnce];
      std::uint32_t k[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        q[i] = word(shared.q, row_place, row_of(first, i));
        k[i] = word(shared.k, row_place, row_of(first, i));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int t = row_of(first, i);
        const float2 sum = make_float2(sums.of[t].x + begin.x, sums.of[t].y + begin.y);
        const float2 since = exp2_of(sum);
        const float2 inverse = exp2_of(make_float2(-sum.x, -sum.y));
        const float2 q_row = times(unpacked(q[i]), since);
        const float2 k_row = times(unpacked(k[i]), since);
        const float2 k_column = times(unpacked(k[i]), inverse);
        word(shared.q, row_place, t) = packed(q_row);
        word(shared.k, row_place, t) = packed(k_row);
        word(shared.columns, column_place, t) = packed(k_column);
        const float2 until = times(k_column, through_middle);
        if (!second)
          word(shared.columns, column_place, kChunk + t) = packed(times(until, second_middle));
        word(q_rows, row_place, t) = packed(times(q_row, since_begin));
        word(k_rows, row_place, t) = packed(times(k_row, since_begin));
        word(until_rows, row_place, t) = packed(times(until, rest));
      }
    }
  }

  /// Of every row with all columns; what is above the diagonal may be anything.
  __device__ __forceinline__ void multiply_halves(RowProducts& x) const {
    float all[kColumnRows / 2];
    const std::uint64_t left = ptx::wgmma_descriptor(rows());
    const std::uint64_t right = ptx::wgmma_descriptor(shared.columns);
    ptx::wgmma_pin(all);
    ptx::wgmma_fence();
#pragma unroll
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      const auto row_step = static_cast<std::uint64_t>((ks / 4 * kPanel * 2 + ks % 4 * 32) >> 4);
      const auto column_step =
          static_cast<std::uint64_t>((ks / 4 * kColumnRows * 128 + ks % 4 * 32) >> 4);
      ptx::wgmma_ss<__nv_bfloat16, kColumnRows, ptx::Major::k, ptx::Major::k>(
          all, left + row_step, right + column_step, ks > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(all);
    const bool second = warp() >= kBlocks / 2;
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i)
      x[i] = i < kHalf / 2 && second ? all[kChunk / 2 + i] : all[i];
  }

  // ---- strong decays

  /// G just before this warp's rows.
  __device__ __forceinline__ float2 reference(int c) const {
    return warp() == 0 ? make_float2(0.0f, 0.0f)
                       : *reinterpret_cast<const float2*>(&shared.g[16 * warp() - 1][c]);
  }

  static __device__ __forceinline__ std::uint32_t scaled(std::uint32_t pair, float2 log_factor) {
    return pack(low_of(pair) * ptx::exp2_approx(log_factor.x),
                high_of(pair) * ptx::exp2_approx(log_factor.y));
  }

  [[nodiscard]] __device__ bool decays_strongly() const {
    bool strong = false;
    for (int c = 2 * lane_id(); c < KeyColumns; c += 64) {
      const float2 before = reference(c);
      const float2 after = *reinterpret_cast<const float2*>(&shared.g[16 * warp() + 15][c]);
      strong = strong || before.x - after.x > kStrong || before.y - after.y > kStrong;
    }
    return __any_sync(0xffffffffu, strong ? 1 : 0) != 0;
  }

  __device__ void multiply_blocks(RowProducts& x, bool strong) const {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
#pragma unroll
    for (float& product : x) product = 0.0f;
#pragma unroll 1
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      std::uint32_t a[4];
      load_a<64>(a, rows() + ks / 4 * kPanel, 16 * warp(), ks % 4 * 16);
      float2 ref[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) ref[half] = reference(16 * ks + 8 * half + 2 * j);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float2 sum = *reinterpret_cast<const float2*>(
            &shared.g[16 * warp() + g + 8 * (r % 2)][16 * ks + 8 * (r / 2) + 2 * j]);
        const float2 since = make_float2(sum.x - ref[r / 2].x, sum.y - ref[r / 2].y);
        const float2 factor = make_float2(ptx::exp2_approx(since.x), ptx::exp2_approx(since.y));
        a[r] = pack(low_of(a[r]) * factor.x, high_of(a[r]) * factor.y);
      }
#pragma unroll
      for (int nb = 0; nb < kBlocks; ++nb) {
        if (nb > warp() || (strong && nb == warp())) continue;
        std::uint32_t b[4];
        load_b<64>(b, shared.k + ks / 4 * kPanel, 16 * nb, ks % 4 * 16);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float2 sum = *reinterpret_cast<const float2*>(
              &shared.g[16 * nb + g + 8 * (r / 2)][16 * ks + 8 * (r % 2) + 2 * j]);
          b[r] = scaled(b[r], make_float2(ref[r % 2].x - sum.x, ref[r % 2].y - sum.y));
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float(&sum)[4] = *reinterpret_cast<float(*)[4]>(&x[8 * nb + 4 * half]);
          sm90::multiply(sum, a, b[2 * half], b[2 * half + 1]);
        }
      }
    }
  }

  /// The diagonal block of a chunk whose decay inside it spans too much for two factors: every pair
  /// with the difference of exponents, channel by channel.
  __device__ void multiply_diagonal(RowProducts& x) const {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
    float sums[2][4] = {};
#pragma unroll 1
    for (int c = 0; c < KeyColumns; ++c) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = 16 * warp() + g + 8 * (e / 2);
          const int column = 16 * warp() + 8 * n + 2 * j + e % 2;
          const float decayed =
              widen(shared.k[panel_element_at(column, c)]) *
              ptx::exp2_approx(fminf(shared.g[row][c] - shared.g[column][c], 0.0f));
          sums[n][e] += widen(rows()[panel_element_at(row, c)]) * decayed;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 != warp()) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) x[4 * n + e] = n % 2 == 0 ? sums[0][e] : sums[1][e];
    }
  }

  /// Rows of 16-byte pieces multiplied by decays, for the products with the state.
  __device__ void write_decayed_rows() const {
    constexpr int kPieces = KeyColumns / 8;
    for (int i = thread(); i < kChunk * kPieces; i += kThreads) {
      const int row = i / kPieces;
      const int piece = i % kPieces;
      const int at = panel_element_at(row, 8 * piece);
      const uint4 q4 = *reinterpret_cast<const uint4*>(shared.q + at);
      const uint4 k4 = *reinterpret_cast<const uint4*>(shared.k + at);
      const std::uint32_t q[4] = {q4.x, q4.y, q4.z, q4.w};
      const std::uint32_t k[4] = {k4.x, k4.y, k4.z, k4.w};
      std::uint32_t q_since[4];
      std::uint32_t k_since[4];
      std::uint32_t k_until[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int c = 8 * piece + 2 * r;
        const float2 sum = *reinterpret_cast<const float2*>(&shared.g[row][c]);
        const float2 end = *reinterpret_cast<const float2*>(&shared.g[kChunk - 1][c]);
        q_since[r] = scaled(q[r], sum);
        k_since[r] = scaled(k[r], sum);
        k_until[r] = scaled(k[r], make_float2(end.x - sum.x, end.y - sum.y));
      }
      const auto put = [&](const RowsOf& to, const std::uint32_t(&x)[4]) {
        *reinterpret_cast<uint4*>(to.tiles(chunk.index, head) + at) =
            make_uint4(x[0], x[1], x[2], x[3]);
      };
      put(d.q, q_since);
      put(d.k, k_since);
      put(d.k_until, k_until);
    }
  }

  // ---- all

  [[nodiscard]] __device__ __forceinline__ float2 sum_of(int part, int c) const {
    return *reinterpret_cast<const float2*>(&shared.part_sum[part][c]);
  }
  static __device__ __forceinline__ float2 plus(float2 x, float2 y) {
    return make_float2(x.x + y.x, x.y + y.y);
  }

  /// Every warp looks at all channels.
  [[nodiscard]] __device__ __forceinline__ bool any_half_decays_strongly() const {
    float least = 0.0f;
#pragma unroll
    for (int i = 0; i < kParts; i += kParts / 2) {
#pragma unroll
      for (int n = 0; n < KeyColumns / 64; ++n) {
        const int c = 64 * n + 2 * lane_id();
        const float2 x = plus(sum_of(i, c), sum_of(i + 1, c));
        least = fminf(least, fminf(x.x, x.y));
      }
    }
    return __any_sync(0xffffffffu, least < -2.0f * kStrong ? 1 : 0) != 0;
  }

  /// The chunk's products, q and k being in shared memory; every thread of the block.
  __device__ __forceinline__ void multiply(RowProducts& x, const Sums& sums) {
    const int c = channel();
    *reinterpret_cast<float2*>(&shared.part_sum[part()][c]) = sums.of[kPart - 1];
    __syncthreads();
    const float2 first = plus(sum_of(0, c), sum_of(1, c));
    const float2 second = plus(sum_of(2, c), sum_of(3, c));
    const float2 none = make_float2(0.0f, 0.0f);
    const float2 before = part() % 2 == 1 ? sum_of(part() - 1, c) : none;
    if (part() == 0)
      *reinterpret_cast<float2*>(d.pairs[chunk_head].decay + c) = exp2_of(plus(first, second));
    if (!any_half_decays_strongly()) {
      decay_rows(sums, before, first, second);
      ptx::fence_proxy_async();
      __syncthreads();
      multiply_halves(x);
      return;
    }
    const float2 since = plus(before, part() >= kParts / 2 ? first : none);
#pragma unroll
    for (int t = 0; t < kPart; ++t)
      *reinterpret_cast<float2*>(&shared.g[part() * kPart + t][c]) = plus(sums.of[t], since);
    __syncthreads();
    const bool strong = decays_strongly();
    multiply_blocks(x, strong);
    if (strong) multiply_diagonal(x);
    write_decayed_rows();
  }
};

}  // namespace attune::kernels::linear::sm90
