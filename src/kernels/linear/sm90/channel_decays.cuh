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

namespace attune::kernels::linear::sm90 {

template <int KeyColumns>
struct ChannelDecays {
  static constexpr int kHalf = kChunk / 2;
  /// Both factors of every pair stay finite. The safe gate allows 16 * 5 / ln 2 a block.
  static constexpr float kStrong = 116.2f;
  static_assert(KeyColumns == kScoreThreads, "a thread has two channels of a half");
  static_assert(KeyColumns == 2 * kChunk, "as many decays as of tokens");

  /// Tiles of 64 columns side by side.
  struct Shared {
    Half q[kChunk * KeyColumns];
    Half k[kChunk * KeyColumns];
    union {
      struct {
        Half columns[kChunk * KeyColumns];
        Half earlier[kHalf * KeyColumns];  ///< columns of the first half for rows of the second
      };
      float g[kChunk][KeyColumns + 8];  ///< of strong decays; padded against bank conflicts
    };
    alignas(16) float half_sum[2][KeyColumns];
  };

  const PromptParams& d;
  const Params& p;
  Shared& shared;
  const Chunk& chunk;
  int head;
  std::int64_t chunk_head;

  static __device__ __forceinline__ int warp() { return score_thread() / 32; }

  // ---- a thread's two channels and half of the tokens

  static __device__ __forceinline__ int half() { return score_thread() / (KeyColumns / 2); }
  static __device__ __forceinline__ int channel() { return score_thread() % (KeyColumns / 2) * 2; }

  /// L of the thread's channels after each token.
  struct Sums {
    float2 of[kHalf];
  };

  /// Two raw gates a token. Tokens and channels that do not exist have -inf, which is no decay.
  __device__ __forceinline__ void load_gates(std::uint32_t (&raw)[kHalf]) const {
    constexpr Half kNone = 0xff80;
    const int c = channel();
    const int count = chunk.count - half() * kHalf;
    const auto* from = static_cast<const Half*>(p.gate.data) +
                       (chunk.first_token + half() * kHalf) * p.gate.row +
                       static_cast<std::int64_t>(head) * p.dk + c;
    if (d.wide_gate) {
#pragma unroll
      for (int t = 0; t < kHalf; ++t) {
        raw[t] = t < count && c < p.dk ? *reinterpret_cast<const std::uint32_t*>(from)
                                       : kNone | std::uint32_t{kNone} << 16;
        from += p.gate.row;
      }
      return;
    }
#pragma unroll
    for (int t = 0; t < kHalf; ++t) {
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
    std::uint32_t raw[kHalf];
    load_gates(raw);
    const float a = exp_approx(a_log);
    float2 sum = make_float2(0.0f, 0.0f);
    if (p.gate_lower_bound < 0.0f) {
      const float bound = p.gate_lower_bound * kLog2E;
#pragma unroll
      for (int t = 0; t < kHalf; ++t) {
        sum.x += bound * sigmoid_approx(a * (low_of(raw[t]) + bias[0]));
        sum.y += bound * sigmoid_approx(a * (high_of(raw[t]) + bias[1]));
        sums.of[t] = sum;
      }
      return;
    }
    const float bias2[2] = {kLog2E * bias[0], kLog2E * bias[1]};
#pragma unroll
    for (int t = 0; t < kHalf; ++t) {
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
  /// with their decay since the chunk's begin, k with its decay until the end.
  template <bool Second>
  __device__ __forceinline__ void decay_rows(const Sums& sums, float2 first_half,
                                             float2 second_half) const {
    const int c = channel();
    constexpr int kFirst = Second ? kHalf : 0;
    const float2 own = Second ? second_half : first_half;
    const float2 middle = make_float2(0.5f * own.x, 0.5f * own.y);
    const float2 through_middle = exp2_of(middle);
    const float2 through_second = exp2_of(second_half);
    const float2 before = Second ? times(exp2_of(first_half), through_middle) : through_middle;
    const float2 second_middle = exp2_of(make_float2(0.5f * second_half.x, 0.5f * second_half.y));
    // In memory rows lie as they do here, and those beyond the chunk's tokens stay zeros.
    const auto word = [&](Half* tile, int t) -> std::uint32_t& {
      return *reinterpret_cast<std::uint32_t*>(tile + panel_element_at(kFirst + t, c));
    };
    Half* const q_rows = d.q.tiles(chunk.index, head);
    Half* const k_rows = d.k.tiles(chunk.index, head);
    Half* const until_rows = d.k_until.tiles(chunk.index, head);
    // Some rows are read before the first of them is written: what is written might be what is
    // read next, for all the compiler knows.
    constexpr int kAtOnce = 8;
#pragma unroll
    for (int first = 0; first < kHalf; first += kAtOnce) {
      float2 q[kAtOnce];
      float2 k[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        q[i] = unpacked(word(shared.q, first + i));
        k[i] = unpacked(word(shared.k, first + i));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int t = first + i;
        const float2 sum = make_float2(sums.of[t].x - middle.x, sums.of[t].y - middle.y);
        const float2 since = exp2_of(sum);
        const float2 inverse = exp2_of(make_float2(-sum.x, -sum.y));
        const float2 q_row = times(q[i], since);
        const float2 k_row = times(k[i], since);
        const float2 k_column = times(k[i], inverse);
        word(shared.q, t) = packed(q_row);
        word(shared.k, t) = packed(k_row);
        word(shared.columns, t) = packed(k_column);
        const float2 until = times(k_column, through_middle);
        if (!Second)
          *reinterpret_cast<std::uint32_t*>(shared.earlier + panel_element_at<kHalf>(t, c)) =
              packed(times(until, second_middle));
        word(q_rows, t) = packed(times(q_row, before));
        word(k_rows, t) = packed(times(k_row, before));
        word(until_rows, t) = packed(Second ? until : times(until, through_second));
      }
    }
  }

  /// The warp's own, 16 channels of them.
  __device__ __forceinline__ void load_rows(std::uint32_t (&q)[4], std::uint32_t (&k)[4],
                                            int ks) const {
    load_a<64>(q, shared.q + ks / 4 * kPanel, 16 * warp(), ks % 4 * 16);
    load_a<64>(k, shared.k + ks / 4 * kPanel, 16 * warp(), ks % 4 * 16);
  }

  __device__ __forceinline__ void multiply_halves(Products& x) const {
#pragma unroll
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      std::uint32_t q[4];
      std::uint32_t k[4];
      load_rows(q, k, ks);
#pragma unroll
      for (int nb = 0; nb < kBlocks; ++nb) {
        if (nb > warp()) continue;
        std::uint32_t b[4];
        load_b<64>(b,
                   nb < 2 && warp() >= 2 ? shared.earlier + ks / 4 * (kPanel / 2)
                                         : shared.columns + ks / 4 * kPanel,
                   16 * nb, ks % 4 * 16);
        add_products(x, nb, q, k, b);
      }
    }
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

  __device__ void multiply_blocks(Products& x, bool strong) const {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
#pragma unroll 1
    for (int ks = 0; ks < KeyColumns / 16; ++ks) {
      std::uint32_t q[4];
      std::uint32_t k[4];
      load_rows(q, k, ks);
      float2 ref[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) ref[half] = reference(16 * ks + 8 * half + 2 * j);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float2 sum = *reinterpret_cast<const float2*>(
            &shared.g[16 * warp() + g + 8 * (r % 2)][16 * ks + 8 * (r / 2) + 2 * j]);
        const float2 since = make_float2(sum.x - ref[r / 2].x, sum.y - ref[r / 2].y);
        const float2 factor = make_float2(ptx::exp2_approx(since.x), ptx::exp2_approx(since.y));
        q[r] = pack(low_of(q[r]) * factor.x, high_of(q[r]) * factor.y);
        k[r] = pack(low_of(k[r]) * factor.x, high_of(k[r]) * factor.y);
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
        add_products(x, nb, q, k, b);
      }
    }
  }

  /// The diagonal block of a chunk whose decay inside it spans too much for two factors: every pair
  /// with the difference of exponents, channel by channel.
  __device__ void multiply_diagonal(Products& x) const {
    const int g = lane_id() / 4;
    const int j = lane_id() % 4;
    float kk[2][4] = {};
    float qk[2][4] = {};
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
          kk[n][e] += widen(shared.k[panel_element_at(row, c)]) * decayed;
          qk[n][e] += widen(shared.q[panel_element_at(row, c)]) * decayed;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (n / 2 != warp()) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        x.kk[n][e] = n % 2 == 0 ? kk[0][e] : kk[1][e];
        x.qk[n][e] = n % 2 == 0 ? qk[0][e] : qk[1][e];
      }
    }
  }

  /// Rows of 16-byte pieces multiplied by decays, for the products with the state.
  __device__ void write_decayed_rows() const {
    constexpr int kPieces = KeyColumns / 8;
    for (int i = score_thread(); i < kChunk * kPieces; i += kScoreThreads) {
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

  /// Every warp looks at all channels.
  [[nodiscard]] __device__ __forceinline__ bool any_half_decays_strongly() const {
    float least = 0.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 x = *reinterpret_cast<const float4*>(&shared.half_sum[i][4 * lane_id()]);
      least = fminf(least, fminf(fminf(x.x, x.y), fminf(x.z, x.w)));
    }
    return __any_sync(0xffffffffu, least < -2.0f * kStrong ? 1 : 0) != 0;
  }

  /// The chunk's products, q and k being in shared memory; every thread of the warpgroup.
  __device__ __forceinline__ void multiply(Products& x, const Sums& sums) {
    const int c = channel();
    *reinterpret_cast<float2*>(&shared.half_sum[half()][c]) = sums.of[kHalf - 1];
    score_barrier();
    const float2 first = *reinterpret_cast<const float2*>(&shared.half_sum[0][c]);
    const float2 second = *reinterpret_cast<const float2*>(&shared.half_sum[1][c]);
    if (half() == 1)
      *reinterpret_cast<float2*>(d.pairs[chunk_head].decay + c) =
          exp2_of(make_float2(first.x + second.x, first.y + second.y));
    if (!any_half_decays_strongly()) {
      if (half() == 0) {
        decay_rows<false>(sums, first, second);
      } else {
        decay_rows<true>(sums, first, second);
      }
      score_barrier();
      multiply_halves(x);
      return;
    }
    const float2 before = half() == 1 ? first : make_float2(0.0f, 0.0f);
#pragma unroll
    for (int t = 0; t < kHalf; ++t)
      *reinterpret_cast<float2*>(&shared.g[half() * kHalf + t][c]) =
          make_float2(sums.of[t].x + before.x, sums.of[t].y + before.y);
    score_barrier();
    const bool strong = decays_strongly();
    multiply_blocks(x, strong);
    if (strong) multiply_diagonal(x);
    write_decayed_rows();
  }
};

}  // namespace attune::kernels::linear::sm90
