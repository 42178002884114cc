// What a warpgroup does to a page of the fp8 cache, to queries and to an item's rows
// (few_packed.cuh).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/packed_latent.hpp"
#include "kernels/mla_decode/sm90/few_finish.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/widen.cuh"

namespace attune::kernels::mla_decode::sm90::few {

namespace packed = attention::packed_latent;

inline constexpr int kPackedGroups = 2;
inline constexpr int kPackedStages = 4;
inline constexpr int kPackedConsumers = 128 * kPackedGroups;
using PackedRoles = Roles<128, 240, 24>;
static_assert(PackedRoles::kThreads == kPackedConsumers + 128);
inline constexpr int kPageBytes = kKeys * packed::kTokenBytes;

/// What a thread has of an item is so many float4, its state first …
template <int Rows>
inline constexpr int kPartVectors = (kLatentPanels + 1) * Rows / 8;
/// … handed over in rounds of as many as there is room for.
template <int Rows>
inline constexpr int kPartAtOnce = Rows <= 16 ? kPartVectors<Rows> : Rows / 8;

template <int Rows>
struct PackedShared {
  /// In panels; bf16 when they arrive, fp16 in the products' order later.
  alignas(1024) __half q[kLatentPanels][Rows * 64];
  alignas(1024) __nv_bfloat16 q_rope[Rows * 64];
  alignas(1024) __half p[kPackedGroups][Rows * 64];
  alignas(128) std::uint8_t k[kPackedStages][kPageBytes];
  /// From the second warpgroup's threads to those of the first.
  alignas(16) float4 part[kPartAtOnce<Rows>][128];

  __half scales[kPackedGroups][packed::kScales][kKeys];  ///< of the tile's values
  float maximum[kPackedGroups][4][Rows];
  float sum[2][4][Rows];
  std::int32_t arrival;

  ptx::Mbarrier q_full;
  ptx::Mbarrier q_empty;
  ptx::Mbarrier drawn;
  ptx::Mbarrier read;
  ptx::Mbarrier k_full[kPackedStages];
  ptx::Mbarrier k_empty[kPackedStages];
};
static_assert(sizeof(PackedShared<16>) <= 227 * 1024 && sizeof(PackedShared<32>) <= 227 * 1024);

/// Named barriers beside those of the warpgroups.
inline constexpr int kQueryBarrier = 4;
inline constexpr int kPartFullBarrier = 5;
inline constexpr int kPartEmptyBarrier = 6;

/// Outputs of which a thread has 16 neighbouring columns: 2 (panel) + h.
struct ByThreads {
  static __device__ __forceinline__ int first_column() { return 16 * (8 * warp() + lane() / 4); }

  template <class Element, int Rows>
  static __device__ __forceinline__ void write_output(const Output<Rows>& o, const Params& params,
                                                      const attention::LatentItem& item,
                                                      int block) {
#pragma unroll
    for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const RowPlace place = place_of(params, block, row_of(c) + e, item.qo_len);
        if (!place.exists) continue;
        auto* const out =
            static_cast<Element*>(params.o) +
            static_cast<std::int64_t>(item.q_token + place.token) * params.o_token_stride +
            place.head * params.o_head_stride + first_column();
        std::uint32_t w[kLatentPanels];
#pragma unroll
        for (int panel = 0; panel < kLatentPanels; ++panel)
          w[panel] = ptx::pack_pair<Element>(o[panel][4 * c + e], o[panel][4 * c + 2 + e]);
        reinterpret_cast<uint4*>(out)[0] = make_uint4(w[0], w[1], w[2], w[3]);
        reinterpret_cast<uint4*>(out)[1] = make_uint4(w[4], w[5], w[6], w[7]);
      }
  }

  template <int Rows>
  static __device__ __forceinline__ void write_partial(const Output<Rows>& o, float* row, int c,
                                                       int e) {
    auto* const out = reinterpret_cast<float4*>(row + first_column());
#pragma unroll
    for (int i = 0; i < kLatentPanels / 2; ++i)
      out[i] = make_float4(o[2 * i][4 * c + e], o[2 * i][4 * c + 2 + e], o[2 * i + 1][4 * c + e],
                           o[2 * i + 1][4 * c + 2 + e]);
  }
};

/// Four 16-byte chunks as rows of words, transposed.
__device__ __forceinline__ void transpose(const uint4 (&from)[4], uint4 (&to)[4]) {
  to[0] = make_uint4(from[0].x, from[1].x, from[2].x, from[3].x);
  to[1] = make_uint4(from[0].y, from[1].y, from[2].y, from[3].y);
  to[2] = make_uint4(from[0].z, from[1].z, from[2].z, from[3].z);
  to[3] = make_uint4(from[0].w, from[1].w, from[2].w, from[3].w);
}

/// Queries into the order of the keys' bytes: thread j of a row's four has columns 32 j … 32 j + 31
/// of each 128, in two runs of 16, and each step takes four of a run: of the step's 16 elements
/// 2 j, 2 j + 1, 2 j + 8, 2 j + 9. Latents become fp16.
template <int Rows>
__device__ __forceinline__ void arrange_queries(PackedShared<Rows>& shared) {
  const int t = static_cast<int>(threadIdx.x);
  constexpr int kRowsAtOnce = kPackedConsumers / 16;
  static_assert(Rows % kRowsAtOnce == 0);
  // Latents: block of 128 columns, run, and which half of the run.
  const int block = t / kRowsAtOnce / 4;
  const int run = t / kRowsAtOnce / 2 % 2;
  const int half = t / kRowsAtOnce % 2;
  const bool has_rope = t < kRowsAtOnce * 2;
#pragma unroll 1
  for (int row = t % kRowsAtOnce; row < Rows; row += kRowsAtOnce) {
    const auto chunk = [row](void* panel, int at) {
      return static_cast<uint4*>(panel) + row * 8 + (at ^ (row % 8));
    };
    uint4 from[4];
    uint4 to[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint4 x = *chunk(shared.q[2 * block + j / 2], 4 * (j % 2) + 2 * run + half);
      from[j] = make_uint4(ptx::f16_of_bf16(x.x), ptx::f16_of_bf16(x.y), ptx::f16_of_bf16(x.z),
                           ptx::f16_of_bf16(x.w));
    }
    transpose(from, to);
    // Rope: the thread's columns are 16 j … 16 j + 15, in two runs of 8.
    uint4 rope[4];
    if (has_rope) {
#pragma unroll
      for (int j = 0; j < 4; ++j) from[j] = *chunk(shared.q_rope, 2 * j + half);
      transpose(from, rope);
    }
    ptx::named_barrier_sync(kQueryBarrier, kPackedConsumers);
#pragma unroll
    for (int i = 0; i < 4; ++i) *chunk(shared.q[2 * block + run], 4 * half + i) = to[i];
    if (has_rope)
#pragma unroll
      for (int i = 0; i < 4; ++i) *chunk(shared.q_rope, 4 * half + i) = rope[i];
  }
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(kQueryBarrier, kPackedConsumers);
}

inline constexpr std::uint64_t kPackedColumnStep = 16 * 2 >> 4;

__device__ __forceinline__ std::uint32_t word(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/// S^T of a page. Leaves the scales of values behind, for keys that exist.
template <int Rows>
__device__ __forceinline__ void page_scores(Scores<Rows>& s, const std::uint8_t* page,
                                            std::uint64_t q, std::uint64_t q_rope,
                                            __half (&scales)[packed::kScales][kKeys], int valid) {
  using ptx::Major;
  constexpr std::uint64_t kQueryStep = Rows * 128 >> 4;
  // Few rows leave registers for a sum of each scale's columns, and for operands of both runs of a
  // block, twice; else keys are scaled as they are widened.
  constexpr bool kApart = Rows <= 16;
  constexpr int kSums = kApart ? packed::kScales : 1;
  constexpr int kRuns = kApart ? 2 : 1;
  const int key = 16 * warp() + lane() / 4;
  const std::uint8_t* const row[2] = {page + key * packed::kTokenBytes,
                                      page + (key + 8) * packed::kTokenBytes};
  const auto chunk = [&](int h, int at, int run) {
    return *reinterpret_cast<const uint4*>(row[h] + at + 32 * (lane() % 4) + 16 * run);
  };
  Scores<Rows> part[kSums];
  std::uint32_t a[2][4 * kRuns][4];
#pragma unroll
  for (int run = 0; run < 2; ++run) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 x = chunk(h, packed::kRopeAt, run);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[1][2 * run + i / 2][h + i % 2 * 2] = word(x, i);
    }
  }
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step)
    ptx::narrow::wgmma_rs<__nv_bfloat16, Rows, Major::k>(
        s, a[1][step], q_rope + step * kPackedColumnStep, step > 0);
  ptx::wgmma_commit();
  float4 scale[2];
#pragma unroll
  for (int h = 0; h < 2; ++h)
    scale[h] = *reinterpret_cast<const float4*>(row[h] + packed::kScalesAt);
  const auto scale_of = [&](int h, int block) {
    return block == 0 ? scale[h].x : block == 1 ? scale[h].y : block == 2 ? scale[h].z : scale[h].w;
  };
#pragma unroll
  for (int turn = 0; turn < packed::kScales * 2 / kRuns; ++turn) {
    const int first_run = turn * kRuns;  // of all blocks'
    const int block = first_run / 2;
    uint4 x[kRuns][2];
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        x[run][h] = chunk(h, packed::kScaleBlock * block, (first_run + run) % 2);
    if (turn >= 1) ptx::wgmma_wait<1>();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = scale_of(h, block);
      const std::uint32_t factors = ptx::pack_pair<__half>(factor, factor);
#pragma unroll
      for (int step = 0; step < 4 * kRuns; ++step) {
        const std::uint32_t four = word(x[step / 4][h], step % 4);
        std::uint32_t(&to)[4] = a[turn % 2][step];
        if constexpr (kApart) {
          to[h] = ptx::widen_fp8<__nv_fp8_e4m3, false>(four);
          to[2 + h] = ptx::widen_fp8<__nv_fp8_e4m3, true>(four);
        } else {
          ptx::widen_e4m3(four, factors, to[h], to[2 + h]);
        }
      }
    }
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4 * kRuns; ++step) {
      const std::uint64_t queries =
          q + (first_run + step / 4) * kQueryStep + step % 4 * kPackedColumnStep;
      if constexpr (kApart)
        ptx::narrow::wgmma_rs<__half, Rows, Major::k>(part[block], a[turn % 2][step], queries,
                                                      step > 0);
      else
        ptx::narrow::wgmma_rs<__half, Rows, Major::k>(s, a[turn % 2][step], queries, true);
    }
    ptx::wgmma_commit();
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)
    scales[lane() % 4][key + 8 * h] =
        __float2half_rn(key + 8 * h < valid ? scale_of(h, lane() % 4) : 0.0f);
  ptx::wgmma_wait<0>();
  ptx::wgmma_pin(s);
  if constexpr (kApart) {
#pragma unroll
    for (int block = 0; block < kSums; ++block) ptx::wgmma_pin(part[block]);
#pragma unroll
    for (int i = 0; i < Rows / 2; ++i)
#pragma unroll
      for (int block = 0; block < kSums; ++block)
        s[i] = fmaf(scale_of(i / 2 % 2, block), part[block][i], s[i]);
  }
}

/// O^T += V^T P^T. `done` is called when the page has been read.
template <int Rows, class Done>
__device__ __forceinline__ void page_values(Output<Rows>& o, const std::uint8_t* page,
                                            std::uint64_t p,
                                            const __half (&scales)[packed::kScales][kKeys],
                                            Done done) {
  using ptx::Major;
  // Panels whose operands are in registers at once, twice.
  constexpr int kTurns = Rows <= 16 ? 1 : 2;
  constexpr int kAtOnce = kLatentPanels / kTurns;
  const std::uint8_t* const column = page + ByThreads::first_column();
  std::uint32_t a[2][kAtOnce][4];
  uint4 x[2][2];
  std::uint32_t scale[2];
  // The thread's keys of a step: 2 j, 2 j + 1, 2 j + 8, 2 j + 9.
  const auto load = [&](int step) {
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const int key = 16 * step + 2 * (lane() % 4) + 8 * u;
      scale[u] = *reinterpret_cast<const std::uint32_t*>(&scales[warp()][key]);
#pragma unroll
      for (int e = 0; e < 2; ++e)
        x[u][e] = *reinterpret_cast<const uint4*>(column + (key + e) * packed::kTokenBytes);
    }
  };
  load(0);
#pragma unroll
  for (int turn = 0; turn < kTurns * kKeys / 16; ++turn) {
    const int step = turn / kTurns;
    const int first = turn % kTurns * kAtOnce;
    if (turn >= 2) ptx::wgmma_wait<1>();
#pragma unroll
    for (int i = 0; i < kAtOnce; i += 2)
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const std::uint32_t even = word(x[u][0], (first + i) / 2);
        const std::uint32_t odd = word(x[u][1], (first + i) / 2);
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          // Two columns of two keys each.
          const std::uint32_t bytes = __byte_perm(even, odd, pair == 0 ? 0x5140 : 0x7362);
          std::uint32_t(&to)[4] = a[turn % 2][i + pair];
          ptx::widen_e4m3(bytes, scale[u], to[2 * u], to[2 * u + 1]);
        }
      }
    if (turn + 1 == kTurns * kKeys / 16)
      done();
    else if ((turn + 1) % kTurns == 0)
      load(step + 1);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      ptx::narrow::wgmma_rs<__half, Rows, Major::k>(o[first + i], a[turn % 2][i],
                                                    p + step * kPackedColumnStep, true);
    ptx::wgmma_commit();
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int panel = 0; panel < kLatentPanels; ++panel) ptx::wgmma_pin(o[panel]);
}

/// The second warpgroup's state and outputs to the first, thread by thread.
template <int Rows>
__device__ __forceinline__ void hand_over(PackedShared<Rows>& shared, const Output<Rows>& o,
                                          const RowState<Rows>& state) {
  constexpr int kOfPanel = Rows / 8;
  constexpr int kAtOnce = kPartAtOnce<Rows>;
  const int t = static_cast<int>(threadIdx.x % 128);
#pragma unroll
  for (int i = 0; i < kPartVectors<Rows>; ++i) {
    if (i % kAtOnce == 0) ptx::named_barrier_sync(kPartEmptyBarrier, kPackedConsumers);
    const int c = i % kOfPanel;
    float4& to = shared.part[i % kAtOnce][t];
    if (i < kOfPanel) {
      to = make_float4(state.maximum[c][0], state.maximum[c][1], state.sum[c][0], state.sum[c][1]);
    } else {
      const float* const from = o[i / kOfPanel - 1] + 4 * c;
      to = make_float4(from[0], from[1], from[2], from[3]);
    }
    if ((i + 1) % kAtOnce == 0) ptx::named_barrier_arrive(kPartFullBarrier, kPackedConsumers);
  }
}

template <int Rows>
__device__ __forceinline__ void take_over(const PackedShared<Rows>& shared, Output<Rows>& o,
                                          RowState<Rows>& state) {
  constexpr int kOfPanel = Rows / 8;
  constexpr int kAtOnce = kPartAtOnce<Rows>;
  const int t = static_cast<int>(threadIdx.x % 128);
  RowValues<Rows> own;
  RowValues<Rows> other;
#pragma unroll
  for (int i = 0; i < kPartVectors<Rows>; ++i) {
    if (i % kAtOnce == 0) {
      ptx::named_barrier_arrive(kPartEmptyBarrier, kPackedConsumers);
      ptx::named_barrier_sync(kPartFullBarrier, kPackedConsumers);
    }
    const int c = i % kOfPanel;
    const float4 x = shared.part[i % kAtOnce][t];
    if (i < kOfPanel) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float theirs = e == 0 ? x.x : x.y;
        const float maximum = fmaxf(state.maximum[c][e], theirs);
        own[c][e] = ptx::exp2_approx(state.maximum[c][e] - finite(maximum));
        other[c][e] = ptx::exp2_approx(theirs - finite(maximum));
        state.maximum[c][e] = maximum;
        state.sum[c][e] = state.sum[c][e] * own[c][e] + (e == 0 ? x.z : x.w) * other[c][e];
      }
    } else {
      const float values[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float& y = o[i / kOfPanel - 1][4 * c + r];
        y = y * own[c][r % 2] + values[r] * other[c][r % 2];
      }
    }
  }
}

}  // namespace attune::kernels::mla_decode::sm90::few
