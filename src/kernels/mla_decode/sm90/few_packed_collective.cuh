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

inline constexpr int kPackedRows = 16;
inline constexpr int kPackedGroups = 2;
inline constexpr int kPackedStages = 4;
inline constexpr int kPackedConsumers = 128 * kPackedGroups;
using PackedRoles = Roles<128, 224, 56>;
static_assert(PackedRoles::kThreads == kPackedConsumers + 128);
inline constexpr int kPageBytes = kKeys * packed::kTokenBytes;

struct PackedShared {
  static constexpr int kRows = kPackedRows;
  /// In panels; bf16 when they arrive, fp16 in the products' order later.
  alignas(1024) __half q[kLatentPanels][kRows * 64];
  alignas(1024) __nv_bfloat16 q_rope[kRows * 64];
  alignas(1024) __half p[kPackedGroups][kRows * 64];
  alignas(128) std::uint8_t k[kPackedStages][kPageBytes];
  /// What the second warpgroup's threads have of an item, for those of the first.
  alignas(16) float4 part[(kLatentPanels + 1) * kRows / 8][128];

  __half scales[kPackedGroups][packed::kScales][kKeys];  ///< of the tile's values
  float maximum[kPackedGroups][4][kRows];
  float sum[2][4][kRows];
  std::int32_t arrival;

  ptx::Mbarrier q_full;
  ptx::Mbarrier q_empty;
  ptx::Mbarrier drawn;
  ptx::Mbarrier read;
  ptx::Mbarrier k_full[kPackedStages];
  ptx::Mbarrier k_empty[kPackedStages];
};
static_assert(sizeof(PackedShared) <= 227 * 1024);

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
  static __device__ __forceinline__ void write_partial(const Output<Rows>& o, const Params& params,
                                                       const attention::LatentItem& item, int block,
                                                       std::int64_t place) {
#pragma unroll
    for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = row_of(c) + e;
        if (!place_of(params, block, row, item.qo_len).exists) continue;
        auto* const out = reinterpret_cast<float4*>(params.partial_o +
                                                    (place * Rows + row) * kDimVo + first_column());
#pragma unroll
        for (int i = 0; i < kLatentPanels / 2; ++i)
          out[i] = make_float4(o[2 * i][4 * c + e], o[2 * i][4 * c + 2 + e],
                               o[2 * i + 1][4 * c + e], o[2 * i + 1][4 * c + 2 + e]);
      }
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
__device__ __forceinline__ void arrange_queries(PackedShared& shared) {
  const int t = static_cast<int>(threadIdx.x);
  static_assert(kPackedConsumers == kPackedRows * 16);
  const int row = t % kPackedRows;
  // Latents: block of 128 columns, run, and which half of the run.
  const int block = t / kPackedRows / 4;
  const int run = t / kPackedRows / 2 % 2;
  const int half = t / kPackedRows % 2;
  const auto chunk = [row](void* panel, int at) {
    return static_cast<uint4*>(panel) + row * 8 + (at ^ (row % 8));
  };
  uint4 from[4];
  uint4 to[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint4 x = *chunk(shared.q[2 * block + j / 2], 4 * (j % 2) + 2 * run + half);
    from[j] = make_uint4(ptx::f16_of_bf16(x.x), ptx::f16_of_bf16(x.y), ptx::f16_of_bf16(x.z),
                         ptx::f16_of_bf16(x.w));
  }
  transpose(from, to);
  // Rope: the thread's columns are 16 j … 16 j + 15, in two runs of 8.
  uint4 rope[4];
  const bool has_rope = t < kPackedRows * 2;
  const int rope_run = t / kPackedRows % 2;
  if (has_rope) {
#pragma unroll
    for (int j = 0; j < 4; ++j) from[j] = *chunk(shared.q_rope, 2 * j + rope_run);
    transpose(from, rope);
  }
  ptx::named_barrier_sync(kQueryBarrier, kPackedConsumers);
#pragma unroll
  for (int i = 0; i < 4; ++i) *chunk(shared.q[2 * block + run], 4 * half + i) = to[i];
  if (has_rope)
#pragma unroll
    for (int i = 0; i < 4; ++i) *chunk(shared.q_rope, 4 * rope_run + i) = rope[i];
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(kQueryBarrier, kPackedConsumers);
}

inline constexpr std::uint64_t kPackedQueryStep = kPackedRows * 128 >> 4;
inline constexpr std::uint64_t kPackedColumnStep = 16 * 2 >> 4;

__device__ __forceinline__ std::uint32_t word(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/// S^T of a page. Leaves the scales of values behind, for keys that exist.
__device__ __forceinline__ void page_scores(Scores<kPackedRows>& s, const std::uint8_t* page,
                                            std::uint64_t q, std::uint64_t q_rope,
                                            __half (&scales)[packed::kScales][kKeys], int valid) {
  using Element = __half;
  using ptx::Major;
  constexpr int N = kPackedRows;
  const int key = 16 * warp() + lane() / 4;
  const int j = lane() % 4;
  const std::uint8_t* const row[2] = {page + key * packed::kTokenBytes,
                                      page + (key + 8) * packed::kTokenBytes};
  Scores<N> rope;
  {
    uint4 x[2][2];
#pragma unroll
    for (int run = 0; run < 2; ++run)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        x[run][h] = *reinterpret_cast<const uint4*>(row[h] + packed::kRopeAt + 32 * j + 16 * run);
    std::uint32_t a[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int r = 0; r < 4; ++r) a[step][r] = word(x[step / 2][r % 2], step % 2 * 2 + r / 2);
    ptx::wgmma_pin(rope);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      ptx::narrow::wgmma_rs<__nv_bfloat16, N, Major::k>(
          rope, a[step], q_rope + step * kPackedColumnStep, step > 0);
    ptx::wgmma_commit();
  }
  float4 scale[2];
#pragma unroll
  for (int h = 0; h < 2; ++h)
    scale[h] = *reinterpret_cast<const float4*>(row[h] + packed::kScalesAt);
  Scores<N> part[packed::kScales];
  std::uint32_t a[2][8][4];
#pragma unroll
  for (int block = 0; block < packed::kScales; ++block) {
    uint4 x[2][2];
#pragma unroll
    for (int run = 0; run < 2; ++run)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        x[run][h] = *reinterpret_cast<const uint4*>(row[h] + packed::kScaleBlock * block + 32 * j +
                                                    16 * run);
    if (block >= 2) ptx::wgmma_wait<1>();
#pragma unroll
    for (int step = 0; step < 8; ++step)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::uint32_t four = word(x[step / 4][h], step % 4);
        a[block % 2][step][h] = ptx::widen_fp8<__nv_fp8_e4m3, false>(four);
        a[block % 2][step][2 + h] = ptx::widen_fp8<__nv_fp8_e4m3, true>(four);
      }
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 8; ++step)
      ptx::narrow::wgmma_rs<Element, N, Major::k>(
          part[block], a[block % 2][step],
          q + (2 * block + step / 4) * kPackedQueryStep + step % 4 * kPackedColumnStep, step > 0);
    ptx::wgmma_commit();
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float mine = j == 0 ? scale[h].x : j == 1 ? scale[h].y : j == 2 ? scale[h].z : scale[h].w;
    scales[j][key + 8 * h] = __float2half_rn(key + 8 * h < valid ? mine : 0.0f);
  }
  ptx::wgmma_wait<0>();
  ptx::wgmma_pin(rope);
#pragma unroll
  for (int block = 0; block < packed::kScales; ++block) ptx::wgmma_pin(part[block]);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const float4 of = scale[i / 2 % 2];
    s[i] = fmaf(of.x, part[0][i],
                fmaf(of.y, part[1][i], fmaf(of.z, part[2][i], fmaf(of.w, part[3][i], rope[i]))));
  }
}

/// O^T += V^T P^T. `done` is called when the page has been read.
template <class Done>
__device__ __forceinline__ void page_values(Output<kPackedRows>& o, const std::uint8_t* page,
                                            std::uint64_t p,
                                            const __half (&scales)[packed::kScales][kKeys],
                                            Done done) {
  using ptx::Major;
  const int j = lane() % 4;
  const std::uint8_t* const column = page + ByThreads::first_column();
  std::uint32_t a[2][kLatentPanels][4];
  // The thread's keys of a step: 2 j, 2 j + 1, 2 j + 8, 2 j + 9.
  const auto load = [&](uint4(&x)[2][2], std::uint32_t(&scale)[2], int step) {
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const int key = 16 * step + 2 * j + 8 * u;
      scale[u] = *reinterpret_cast<const std::uint32_t*>(&scales[warp()][key]);
#pragma unroll
      for (int e = 0; e < 2; ++e)
        x[u][e] = *reinterpret_cast<const uint4*>(column + (key + e) * packed::kTokenBytes);
    }
  };
  uint4 x[2][2];
  std::uint32_t scale[2];
  load(x, scale, 0);
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    if (step >= 2) ptx::wgmma_wait<1>();
#pragma unroll
    for (int four = 0; four < 4; ++four)
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const std::uint32_t even = word(x[u][0], four);
        const std::uint32_t odd = word(x[u][1], four);
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          // Two columns of two keys each.
          const std::uint32_t bytes = __byte_perm(even, odd, pair == 0 ? 0x5140 : 0x7362);
          std::uint32_t(&to)[4] = a[step % 2][2 * four + pair];
          ptx::widen_e4m3(bytes, scale[u], to[2 * u], to[2 * u + 1]);
        }
      }
    if (step + 1 < kKeys / 16)
      load(x, scale, step + 1);
    else
      done();
    ptx::wgmma_fence();
#pragma unroll
    for (int panel = 0; panel < kLatentPanels; ++panel)
      ptx::narrow::wgmma_rs<__half, kPackedRows, Major::k>(o[panel], a[step % 2][panel],
                                                           p + step * kPackedColumnStep, true);
    ptx::wgmma_commit();
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int panel = 0; panel < kLatentPanels; ++panel) ptx::wgmma_pin(o[panel]);
}

/// The second warpgroup's outputs and state to the first, thread by thread.
__device__ __forceinline__ void hand_over(PackedShared& shared, const Output<kPackedRows>& o,
                                          const RowState<kPackedRows>& state) {
  const int t = static_cast<int>(threadIdx.x % 128);
  int at = 0;
#pragma unroll
  for (int panel = 0; panel < kLatentPanels; ++panel)
#pragma unroll
    for (int c = 0; c < kPackedRows / 8; ++c)
      shared.part[at++][t] = make_float4(o[panel][4 * c], o[panel][4 * c + 1], o[panel][4 * c + 2],
                                         o[panel][4 * c + 3]);
#pragma unroll
  for (int c = 0; c < kPackedRows / 8; ++c)
    shared.part[at++][t] =
        make_float4(state.maximum[c][0], state.maximum[c][1], state.sum[c][0], state.sum[c][1]);
}

__device__ __forceinline__ void take_over(const PackedShared& shared, Output<kPackedRows>& o,
                                          RowState<kPackedRows>& state) {
  constexpr int kOfPanel = kPackedRows / 8;
  const int t = static_cast<int>(threadIdx.x % 128);
  RowValues<kPackedRows> own;
  RowValues<kPackedRows> other;
#pragma unroll
  for (int c = 0; c < kOfPanel; ++c) {
    const float4 theirs = shared.part[kLatentPanels * kOfPanel + c][t];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float their_maximum = e == 0 ? theirs.x : theirs.y;
      const float maximum = fmaxf(state.maximum[c][e], their_maximum);
      own[c][e] = ptx::exp2_approx(state.maximum[c][e] - finite(maximum));
      other[c][e] = ptx::exp2_approx(their_maximum - finite(maximum));
      state.maximum[c][e] = maximum;
      state.sum[c][e] = state.sum[c][e] * own[c][e] + (e == 0 ? theirs.z : theirs.w) * other[c][e];
    }
  }
#pragma unroll
  for (int panel = 0; panel < kLatentPanels; ++panel)
#pragma unroll
    for (int c = 0; c < kOfPanel; ++c) {
      const float4 x = shared.part[panel * kOfPanel + c][t];
      const float values[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float& y = o[panel][4 * c + r];
        y = y * own[c][r % 2] + values[r] * other[c][r % 2];
      }
    }
}

}  // namespace attune::kernels::mla_decode::sm90::few
