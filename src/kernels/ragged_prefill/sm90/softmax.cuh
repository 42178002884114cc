// Scores of a key tile to probabilities: the running maximum under the eager rule and the lazy one,
// exponentials, packing. Registers as products.cuh has them.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ragged_prefill/sm90/mask.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

/// 2^(s * scale - offset) for results of at most 2^9, on the FMA pipe: Cody and Waite's split into
/// a rounded exponent and a fraction in [-1/2, 1/2], whose 2^f is a minimax polynomial of degree 3
/// (relative error 7.5e-5, far below bf16's 2e-3). Arguments below -119, masked ones too, give
/// 2^-119.
struct PolynomialExp2 {
  float scale128;   ///< scale / 128
  float offset128;  ///< (119 - offset) / 128

  __device__ __forceinline__ float operator()(float s) const {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    constexpr float kBias = 119.0f;
    const float y = __saturatef(fmaf(s, scale128, offset128));  // (x + 119) / 128, clamped for free
    const float t = fmaf(y, 128.0f, kRound - kBias);
    const float f = fmaf(y, 128.0f, -(t - (kRound - kBias)));
    float p = fmaf(f, 0.0551716691f, 0.242611122f);
    p = fmaf(p, f, 0.693260985f);
    p = fmaf(p, f, 0.999928074f);
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
  }
};

/// Running maximum of this thread's two rows (times scale, base 2).
struct RowState {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  ///< RowSums::by_additions: of this thread's columns
  /// Lazy rule: raw scores up to here need no new maximum; its bits, as an integer. Positive floats
  /// compare as integers, and three at a time; where a limit is not positive, `fast` is false.
  int limit[2] = {};
  bool fast = false;
};

/// Over columns [8 Begin, 8 End) of this thread's row h.
template <int Begin, int End, int N>
__device__ __forceinline__ float row_maximum(const float (&s)[N], int h) {
  float even = fmaxf(s[4 * Begin + 2 * h], s[4 * Begin + 2 * h + 1]);
  float odd = even;
#pragma unroll
  for (int block = Begin + 1; block < End; block += 2) {
    odd = fmaxf(odd, fmaxf(s[4 * block + 2 * h], s[4 * block + 2 * h + 1]));
    if (block + 1 < End)
      even = fmaxf(even, fmaxf(s[4 * block + 4 + 2 * h], s[4 * block + 4 + 2 * h + 1]));
  }
  return fmaxf(even, odd);
}

/// Whether a score of this thread's row exceeds the positive limit.
template <int N>
__device__ __forceinline__ bool row_exceeds(const float (&s)[N], int h, int limit) {
  int even = limit;
  int odd = limit;
#pragma unroll
  for (int block = 0; block < N / 4; block += 2) {
    even = __vimax3_s32(even, __float_as_int(s[4 * block + 2 * h]),
                        __float_as_int(s[4 * block + 2 * h + 1]));
    if (block + 1 < N / 4)
      odd = __vimax3_s32(odd, __float_as_int(s[4 * block + 4 + 2 * h]),
                         __float_as_int(s[4 * block + 4 + 2 * h + 1]));
  }
  return max(even, odd) > limit;
}

/// Takes the four threads' maxima of row h into the state; returns what earlier output must be
/// multiplied with.
__device__ __forceinline__ float move_maximum(RowState& rows, int h, float top, float scale) {
  constexpr unsigned kAll = 0xffffffffu;
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
  top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
  const float next = fmaxf(rows.max[h], top * scale);
  const float base = next == -INFINITY ? 0.0f : next;
  const float factor = ptx::exp2_approx(rows.max[h] - base);
  rows.max[h] = next;
  return factor;
}

/// The lazy rule's limits for the maxima in use.
template <class C>
__device__ __forceinline__ void set_limits(RowState& rows, float inverse_scale) {
  if constexpr (C::Rule::kLazyRescale) {
    const float limit[2] = {(rows.max[0] + 8.0f) * inverse_scale,
                            (rows.max[1] + 8.0f) * inverse_scale};
    rows.limit[0] = __float_as_int(limit[0]);
    rows.limit[1] = __float_as_int(limit[1]);
    rows.fast = __all_sync(0xffffffffu, limit[0] > 0 && limit[1] > 0);
  }
}

__device__ __forceinline__ float finite_maximum(const RowState& rows, int h) {
  return rows.max[h] == -INFINITY ? 0.0f : rows.max[h];
}

/// Columns [8 Begin, 8 End) of S become 2^(S scale - max).
template <class C, int Begin = 0, int End = C::kKeyTile / 8>
__device__ __forceinline__ void exponentiate(float (&s)[C::kKeyTile / 2], const RowState& rows,
                                             float scale) {
  const float offset[2] = {finite_maximum(rows, 0), finite_maximum(rows, 1)};
  const PolynomialExp2 polynomial[2] = {
      {scale * (1.0f / 128), (119.0f - offset[0]) * (1.0f / 128)},
      {scale * (1.0f / 128), (119.0f - offset[1]) * (1.0f / 128)}};
#pragma unroll
  for (int block = Begin; block < End; ++block)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      constexpr int kPeriod = 16;
      const int h = i / 2;
      float& x = s[4 * block + i];
      // Spread evenly over the columns: place n of 16 is polynomial where n * share wraps.
      const int place = (4 * block + i) % kPeriod;
      const bool on_fma =
          place * C::Rule::kPolynomial % kPeriod + C::Rule::kPolynomial >= kPeriod &&
          C::Rule::kPolynomial > 0;
      x = on_fma ? polynomial[h](x) : ptx::exp2_approx(fmaf(x, scale, -offset[h]));
    }
}

/// Calls f with the bounds, in 16-column steps, of each slice of at most 32 columns of a key tile.
template <class C, int Step = 0, class F>
__device__ __forceinline__ void for_slices(F&& f) {
  constexpr int kSteps = C::kKeyTile / 16;
  if constexpr (Step < kSteps) {
    constexpr int kEnd = Step + 2 < kSteps ? Step + 2 : kSteps;
    f(std::integral_constant<int, Step>(), std::integral_constant<int, kEnd>());
    for_slices<C, kEnd>(f);
  }
}

/// Probabilities of columns [8 Begin, 8 End) into the sums, where those are additions.
template <class C, int Begin, int End>
__device__ __forceinline__ void add_up(RowState& rows, const float (&p)[C::kKeyTile / 2]) {
  if constexpr (C::kAddsUp) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float even = p[4 * Begin + 2 * h];
      float odd = p[4 * Begin + 2 * h + 1];
#pragma unroll
      for (int block = Begin + 1; block < End; ++block) {
        even += p[4 * block + 2 * h];
        odd += p[4 * block + 2 * h + 1];
      }
      rows.sum[h] += even + odd;
    }
  }
}

/// S becomes 2^(S scale - max); the state moves on; `factor` is what earlier output must be
/// multiplied with. Returns whether any row of the warp has a factor other than 1.
template <class C>
__device__ __forceinline__ bool online_softmax(float (&s)[C::kKeyTile / 2], RowState& rows,
                                               float scale, float inverse_scale,
                                               float (&factor)[2]) {
  bool moved = true;
  if constexpr (C::Rule::kLazyRescale) {
    if (rows.fast) {
      const bool mine = row_exceeds(s, 0, rows.limit[0]) || row_exceeds(s, 1, rows.limit[1]);
      moved = __any_sync(0xffffffffu, mine);
    }
  }
  factor[0] = factor[1] = 1.0f;
  if (moved) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      factor[h] = move_maximum(rows, h, row_maximum<0, C::kKeyTile / 8>(s, h), scale);
    set_limits<C>(rows, inverse_scale);
  }
  exponentiate<C>(s, rows, scale);
  if constexpr (C::kAddsUp) {
    rows.sum[0] *= factor[0];
    rows.sum[1] *= factor[1];
    // In the order of an item's first tile: a prompt that is cut elsewhere keeps its bits.
    for_slices<C>([&](auto begin, auto end) { add_up<C, 2 * begin, 2 * end>(rows, s); });
  }
  return moved;
}

/// Probabilities of 16-column steps [Begin, End), rounded in pairs, as the A operands of P V.
template <class C, int Begin = 0, int End = C::kKeyTile / 16>
__device__ __forceinline__ void pack_probabilities(std::uint32_t (&p)[C::kKeyTile / 16][4],
                                                   const float (&s)[C::kKeyTile / 2]) {
#pragma unroll
  for (int step = Begin; step < End; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      p[step][i] =
          ptx::pack_pair<typename C::Element>(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
}

/// Scores of an item's first tile, where the mask's edge lies, to probabilities: slices that no row
/// of the warp sees cost nothing, and only those that some row does not see run the mask.
template <class C>
__device__ __forceinline__ void first_softmax(std::uint32_t (&p)[C::kKeyTile / 16][4],
                                              float (&s)[C::kKeyTile / 2], const Params& params,
                                              const Rows& rows, int tile, RowState& state,
                                              float scale, float inverse_scale) {
  const int first = tile * C::kKeyTile;
  const bool left = params.window_left >= 0 && first < rows.warp_last - params.window_left;
  const int whole = left ? 0 : visible_end(params, rows.warp_first, rows.kv_len) - first;
  const int seen = visible_end(params, rows.warp_last, rows.kv_len) - first;
  float top[2] = {-INFINITY, -INFINITY};
  for_slices<C>([&](auto begin, auto end) {
    if (16 * begin >= seen) return;
    if (16 * end > whole) apply_mask<C, 2 * begin, 2 * end>(s, params, rows, tile);
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h] = fmaxf(top[h], row_maximum<2 * begin, 2 * end>(s, h));
  });
  move_maximum(state, 0, top[0], scale);
  move_maximum(state, 1, top[1], scale);
  set_limits<C>(state, inverse_scale);
  for_slices<C>([&](auto begin, auto end) {
    if (16 * begin < seen) {
      exponentiate<C, 2 * begin, 2 * end>(s, state, scale);
      add_up<C, 2 * begin, 2 * end>(state, s);
      pack_probabilities<C, begin, end>(p, s);
    } else {
#pragma unroll
      for (int step = begin; step < end; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) p[step][i] = 0;
    }
  });
}

}  // namespace attune::kernels::ragged_prefill::sm90
