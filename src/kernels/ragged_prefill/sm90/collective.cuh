// What one consumer warpgroup does to a tile: products, mask, online softmax, output.
//
// Thread t holds rows t / 4 % 8 + 16 (warp) + 8 h, h in {0, 1}, of the warpgroup's 64, and of each
// 8-column block the columns 2 (t % 4) + {0, 1}: register 4 block + 2 h + e (ptx/wgmma.cuh).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/ragged_prefill/sm90/config.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.69314718f;

/// S = Q K^T, 64 queries by one key tile; issued, not waited for.
template <class C>
__device__ __forceinline__ void issue_qk(float (&s)[C::kKeyTile / 2], std::uint64_t q,
                                         std::uint64_t k) {
#pragma unroll
  for (int step = 0; step < C::kHeadDimQk / 16; ++step) {
    const std::uint64_t within = step % 4 * 32 >> 4;
    const std::uint64_t q_panel = (step / 4 * C::kQueryTile * 128) >> 4;
    const std::uint64_t k_panel = (step / 4 * C::kKeyTile * 128) >> 4;
    ptx::wgmma_ss<typename C::Element, C::kKeyTile, ptx::Major::k, ptx::Major::k>(
        s, q + q_panel + within, k + k_panel + within, step > 0);
  }
}

/// Output accumulators: the last 64 columns with the row sums behind them, and the columns before.
template <class C>
struct Accumulators {
  float low[C::kLowColumns == 0 ? 1 : C::kLowColumns / 2];
  float high[C::kHighColumns / 2];

  /// Elements 2 h and 2 h + 1 of this thread's share of an 8-column block.
  __device__ __forceinline__ float& at(int block, int i) {
    constexpr int kLowBlocks = C::kLowColumns / 8;
    return block < kLowBlocks ? low[4 * block + i] : high[4 * (block - kLowBlocks) + i];
  }
  __device__ __forceinline__ float sum(int h) const { return high[32 + 2 * h]; }

  __device__ __forceinline__ void pin() {
    if constexpr (C::kLowColumns > 0) ptx::wgmma_pin(low);
    ptx::wgmma_pin(high);
  }
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    if constexpr (C::kLowColumns > 0) {
#pragma unroll
      for (int i = 0; i < C::kLowColumns / 2; ++i) low[i] *= factor[i / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < C::kHighColumns / 2; ++i) high[i] *= factor[i / 2 % 2];
  }
};

/// Descriptors of a value tile: of its first panel, and of its last, whose neighbour is the ones.
struct ValueDescriptors {
  std::uint64_t low;
  std::uint64_t high;
};

template <class C>
__device__ __forceinline__ ValueDescriptors value_descriptors(const SharedOf<C>& shared) {
  constexpr int kPanel = C::kKeyTile * 64;
  const auto* last = shared.v[0] + C::kLowColumns / 64 * kPanel;
  const auto to_ones = static_cast<std::uint32_t>(reinterpret_cast<const char*>(shared.ones) -
                                                  reinterpret_cast<const char*>(last));
  return {ptx::wgmma_descriptor(shared.v[0], kPanel * 2), ptx::wgmma_descriptor(last, to_ones)};
}

/// (O, sums) (+)= P (V, 1); issued, not waited for.
template <class C>
__device__ __forceinline__ void issue_pv(Accumulators<C>& o,
                                         std::uint32_t (&p)[C::kKeyTile / 16][4],
                                         const ValueDescriptors& v, int stage, bool accumulate) {
  using Element = typename C::Element;
  constexpr std::uint64_t kStage = C::kKeyTile * C::kHeadDimVo * 2 >> 4;
  const std::uint64_t low = v.low + stage * kStage;
  const std::uint64_t high = v.high + stage * (kStage - (kStage << 16));  // the ones stay in place
#pragma unroll
  for (int step = 0; step < C::kKeyTile / 16; ++step) {
    constexpr std::uint64_t kKeys16 = 16 * 128 >> 4;
    if constexpr (C::kLowColumns > 0) {
      ptx::wgmma_rs<Element, C::kLowColumns, ptx::Major::mn>(o.low, p[step], low + step * kKeys16,
                                                             accumulate || step > 0);
    }
    ptx::wgmma_rs<Element, C::kHighColumns, ptx::Major::mn>(
        o.high, p[step], high + step * (kKeys16 - (kKeys16 << 16)), accumulate || step > 0);
  }
}

/// Positions of a warpgroup's rows and the keys they see, relative to the request's first key.
struct Rows {
  int first = 0;  ///< position of the warpgroup's first row
  int last = 0;
  int warp_first = 0;  ///< of this warp's 16 rows
  int warp_last = 0;
  int own[2] = {};  ///< of this thread's two rows
  int kv_len = 0;
};

__device__ __forceinline__ int visible_end(const Params& params, int position, int kv_len) {
  if (params.window_right < 0) return kv_len;
  return min(kv_len, position + 1 + params.window_right);
}

/// Whether some row of the warpgroup does not see some key of the tile.
template <class C>
__device__ __forceinline__ bool needs_mask(const Params& params, const Rows& rows, int tile) {
  const int begin = tile * C::kKeyTile;
  return begin + C::kKeyTile > visible_end(params, rows.first, rows.kv_len) ||
         (params.window_left >= 0 && begin < rows.last - params.window_left);
}

/// Scores of columns [8 Begin, 8 End) that a row does not see become -infinity.
template <class C, int Begin = 0, int End = C::kKeyTile / 8>
__device__ __forceinline__ void apply_mask(float (&s)[C::kKeyTile / 2], const Params& params,
                                           const Rows& rows, int tile) {
  const int column = tile * C::kKeyTile + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int end = visible_end(params, rows.own[h], rows.kv_len) - column;
#pragma unroll
    for (int block = Begin; block < End; ++block)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * block + 2 * h + e];
        x = 8 * block + e < end ? x : -INFINITY;
      }
  }
  if (params.window_left < 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int begin = rows.own[h] - params.window_left - column;
#pragma unroll
    for (int block = Begin; block < End; ++block)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * block + 2 * h + e];
        x = 8 * block + e >= begin ? x : -INFINITY;
      }
  }
}

/// tanh(s * inner), in place; the cap is left to the softmax's scale. By 1 - 2 / (e^2x + 1): the
/// hardware's own tanh is good to 2^-11 only, and a cap of 50 would make that 0.02 of a logit.
template <int N>
__device__ __forceinline__ void apply_soft_cap(float (&s)[N], float inner) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float e = ptx::exp2_approx(s[i] * (2.0f * kLog2E * inner));
    s[i] = fmaf(-2.0f, ptx::reciprocal_approx(e + 1.0f), 1.0f);
  }
}

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
      pack_probabilities<C, begin, end>(p, s);
    } else {
#pragma unroll
      for (int step = begin; step < end; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) p[step][i] = 0;
    }
  });
}

/// Where row h of this thread belongs.
struct Place {
  int token;  ///< counted from the item's first
  int head;
  __device__ __forceinline__ Place(const Params& params, const WorkItem& item, int row)
      : token(row >> params.pack_shift), head(item.head + (row & ((1 << params.pack_shift) - 1))) {}
};

/// Divides by the sums (with the sink); `lse` gets what is to be written once the output is on its
/// way.
template <class C>
__device__ __forceinline__ void normalise(Accumulators<C>& o, float (&lse)[2], const RowState& rows,
                                          const Params& params, int first_row,
                                          const WorkItem& item) {
  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool empty = rows.max[h] == -INFINITY;
    float denominator = o.sum(h);
    if (params.sinks != nullptr) {
      const Place place(params, item, first_row + 8 * h);
      if (place.token < item.q_tokens && !empty)
        denominator += ptx::exp2_approx(params.sinks[place.head] * kLog2E - rows.max[h]);
    }
    inverse[h] = empty ? 0.0f : params.v_scale * ptx::reciprocal_approx(denominator);
    lse[h] = empty ? -INFINITY : (rows.max[h] + __log2f(o.sum(h))) * kLn2;
  }
  o.rescale(inverse);
}

/// The first row of o and lse.
template <class C>
__device__ __forceinline__ int output_token(const WorkItem& item) {
  return C::kOutput == Output::states ? item.o_token : item.q_token;
}

template <class C>
__device__ __forceinline__ void write_lse(const float (&lse)[2], const Params& params,
                                          int first_row, const WorkItem& item) {
  if (params.lse == nullptr) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Place place(params, item, first_row + 8 * h);
    if (place.token < item.q_tokens && threadIdx.x % 4 == 0)
      params.lse[static_cast<std::int64_t>(output_token<C>(item) + place.token) *
                     params.lse_token_stride +
                 place.head * params.lse_head_stride] = lse[h];
  }
}

/// Ordinary stores of the rows that exist. Four neighbouring threads hold a row's 8-column blocks
/// in slices; they trade so that each writes 16 whole bytes.
template <class C>
__device__ __forceinline__ void write_rows(Accumulators<C>& o, const Params& params, int first_row,
                                           const WorkItem& item) {
  using Element = typename C::Outer;
  const int quarter = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Place place(params, item, first_row + 8 * h);
    auto* out = static_cast<Element*>(params.o) +
                static_cast<std::int64_t>(item.q_token + place.token) * params.o_token_stride +
                place.head * params.o_head_stride + 8 * quarter;
#pragma unroll
    for (int block = 0; block < C::kHeadDimVo / 8; block += 4) {
      std::uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        w[j] = ptx::pack_pair<Element>(o.at(block + j, 2 * h), o.at(block + j, 2 * h + 1));
      // A 4 x 4 transpose in two exchanges.
      const bool odd = quarter & 1;
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? w[j] : w[j + 1], 1);
        w[j] = odd ? got : w[j];
        w[j + 1] = odd ? w[j + 1] : got;
      }
      const bool upper = quarter & 2;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const std::uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? w[j] : w[j + 2], 2);
        w[j] = upper ? got : w[j];
        w[j + 2] = upper ? w[j + 2] : got;
      }
      if (place.token < item.q_tokens)
        *reinterpret_cast<uint4*>(out + 8 * block) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}

/// The same in fp32, a pair a store: four threads write a whole sector.
template <class C>
__device__ __forceinline__ void write_states(Accumulators<C>& o, const Params& params,
                                             int first_row, const WorkItem& item) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Place place(params, item, first_row + 8 * h);
    auto* out =
        static_cast<float*>(params.o) +
        static_cast<std::int64_t>(output_token<C>(item) + place.token) * params.o_token_stride +
        place.head * params.o_head_stride + 2 * static_cast<int>(threadIdx.x % 4);
    if (place.token >= item.q_tokens) continue;
#pragma unroll
    for (int block = 0; block < C::kHeadDimVo / 8; ++block)
      *reinterpret_cast<float2*>(out + 8 * block) =
          make_float2(o.at(block, 2 * h), o.at(block, 2 * h + 1));
  }
}

/// The warpgroup's 64 rows into panels of shared memory, for the copy engine; `rows` is the first
/// panel's first row, panels are `panel_stride` elements apart.
template <class C>
__device__ __forceinline__ void stage_rows(Accumulators<C>& o, typename C::Outer* rows,
                                           int panel_stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = static_cast<int>(threadIdx.x % 128 / 32) * 16 + lane % 16;
#pragma unroll
  for (int block = 0; block < C::kHeadDimVo / 8; block += 2) {
    std::uint32_t w[4];
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        w[2 * j + h] =
            ptx::pack_pair<typename C::Outer>(o.at(block + j, 2 * h), o.at(block + j, 2 * h + 1));
    const int chunk = (block % 8 + lane / 16) ^ (row % 8);
    ptx::stmatrix(rows + block / 8 * panel_stride + row * 64 + chunk * 8, w);
  }
  ptx::fence_proxy_async();
}

/// Zeros rows [valid, KeyTile) of a value tile: bytes behind the last key may hold NaN, and 0 * NaN
/// is not 0. Every warpgroup writes the same zeros for itself, so none waits for another.
template <class C>
__device__ __forceinline__ void clear_tail(typename C::Element* v, int valid, int warpgroup) {
  constexpr int kPanels = C::kHeadDimVo / 64;
  const int chunks = (C::kKeyTile - valid) * 8;
  for (int i = static_cast<int>(threadIdx.x % 128); i < chunks; i += 128)
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      reinterpret_cast<uint4*>(v)[(panel * C::kKeyTile + valid) * 8 + i] = make_uint4(0, 0, 0, 0);
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);
}

}  // namespace attune::kernels::ragged_prefill::sm90
