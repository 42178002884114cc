// What a warpgroup does to a tile of keys in e4m3, and to probabilities that two warpgroups share
// (e4m3_kernel.cuh).
//
// S = Q K^T as in collective.cuh: a thread has two of the block's rows. O^T = V^T P^T: thread t of
// warpgroup w has, of 16-column chunk b in 0 … 3 of its warp's 64 columns, the columns
// 256 w + 64 (warp) + 16 b + 2 (t / 4 % 8) + h, h in {0, 1}, for the block's rows
// 8 c + 2 (t % 4) + e, e in {0, 1}: register 4 c + 2 h + e of o[b]. So every warp meets all rows.
#pragma once

#include "kernels/mla_decode/sm90/collective.cuh"
#include "kernels/mla_decode/sm90/e4m3_config.cuh"
#include "kernels/ptx/wgmma_e4m3.cuh"
#include "kernels/ptx/wgmma_narrow_shapes.cuh"

namespace attune::kernels::mla_decode::sm90::e4m3 {

inline constexpr int kChunks = 4;  ///< of 16 columns, of a warp
/// Of a block of N rows.
template <int N>
using Output = float[kChunks][N / 2];

/// A descriptor's step over one panel, and over 32 of its columns.
inline constexpr std::uint64_t kPanelStep = kPanelBytes >> 4;
inline constexpr std::uint64_t kColumnStep = 32 >> 4;

/// S = Q K^T.
__device__ __forceinline__ void issue_scores(Scores& s, std::uint64_t q, std::uint64_t k) {
#pragma unroll
  for (int step = 0; step < kDimQk / 32; ++step) {
    const std::uint64_t at = step / 4 * kPanelStep + step % 4 * kColumnStep;
    ptx::wgmma_e4m3(s, q + at, k + at, step > 0);
  }
  ptx::wgmma_commit();
}

/// Probabilities, maxima and factors to both warpgroups' eyes.
__device__ __forceinline__ void publish(Shared& shared, int w, int place, Probabilities& p,
                                        const RowState& state, const float (&factor)[2],
                                        bool moved) {
  const int row = 16 * warp_of_group() + lane() % 16;
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    const int chunk = (2 * step + lane() / 16) ^ (row % 8);
    ptx::stmatrix(shared.p[place] + row * kKeys + chunk * 8, p[step]);
  }
  if (lane() % 4 == 0) {
    const int first = 16 * warp_of_group() + lane() / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      shared.maximum[place][first + 8 * h] = state.maximum[h];
      shared.factor[place][first + 8 * h] = factor[h];
    }
  }
  if (lane() == 0) shared.moved[place][warp_of_group()] = moved ? 1 : 0;
  ptx::fence_proxy_async();
  ptx::named_barrier_arrive(kReadyBarrier + w, kConsumers);
  ptx::named_barrier_sync(kWarpgroupBarrier + w, 128);
}

/// Of the thread's rows, two by two.
__device__ __forceinline__ float2 pair_of(const float (&rows)[kRows], int c) {
  return *reinterpret_cast<const float2*>(&rows[8 * c + 2 * (lane() % 4)]);
}

/// Outputs times their rows' factors, where any has moved.
template <int N>
__device__ __forceinline__ void rescale(Output<N>& o, const Shared& shared, int place) {
  const int4 moved = *reinterpret_cast<const int4*>(shared.moved[place]);
  if ((moved.x | moved.y | moved.z | moved.w) == 0) return;
#pragma unroll
  for (int c = 0; c < N / 8; ++c) {
    const float2 factor = pair_of(shared.factor[place], c);
#pragma unroll
    for (int b = 0; b < kChunks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[b][4 * c + i] *= i % 2 == 0 ? factor.x : factor.y;
  }
}

/// Zeros a warpgroup's values behind the last key: they may be NaN, and 0 * NaN is not 0. Nobody
/// reads the tile as keys any more.
__device__ __forceinline__ void clear_values(std::uint8_t (*panels)[kPanelBytes], int valid,
                                             int w) {
  const int chunks = (kKeys - valid) * 8;
  for (int i = static_cast<int>(threadIdx.x % 128); i < chunks; i += 128)
#pragma unroll
    for (int panel = 0; panel < kLatentPanels / 2; ++panel)
      reinterpret_cast<uint4*>(panels[panel])[valid * 8 + i] = make_uint4(0, 0, 0, 0);
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(kWarpgroupBarrier + w, 128);
}

/// O^T += V^T P^T over a warpgroup's two panels, which become fp16 on their way into the products'
/// M side: a matrix of 8 keys by 16 columns is loaded as pairs of columns, transposed, so that a
/// thread gets two columns of two keys, and which column is whose is ours to say. `done` is called
/// when all is in registers; the last two steps' products are under way at the end.
template <int N, class Done>
__device__ __forceinline__ void add_values(Output<N>& o, const std::uint8_t (*panels)[kPanelBytes],
                                           std::uint64_t p, Done done) {
  const int matrix = lane() / 8;
  const int row = 8 * (matrix % 2) + lane() % 8;
  const std::uint32_t first =
      ptx::shared_address(panels[warp_of_group() / 2]) + static_cast<std::uint32_t>(row * kColumns);
  std::uint32_t from[2];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int chunk = warp_of_group() % 2 * kChunks + 2 * pair + matrix / 2;
    from[pair] = first + static_cast<std::uint32_t>((chunk ^ (lane() % 8)) * 16);
  }
  std::uint32_t a[2][kChunks][4];
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    std::uint32_t x[2][4];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair)
      ptx::ldmatrix_x4_trans(x[pair], from[pair] + step * 16 * kColumns);
    if (step >= 2) ptx::wgmma_wait<1>();
#pragma unroll
    for (int b = 0; b < kChunks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t columns = __byte_perm(x[b / 2][b % 2 * 2 + half], 0, 0x3120);
        a[step % 2][b][2 * half] = ptx::widen_fp8<__nv_fp8_e4m3, false>(columns);
        a[step % 2][b][2 * half + 1] = ptx::widen_fp8<__nv_fp8_e4m3, true>(columns);
      }
    if (step + 1 == kKeys / 16) done();
    ptx::wgmma_fence();
#pragma unroll
    for (int b = 0; b < kChunks; ++b) {
      const std::uint64_t keys = p + step * sm90::kColumnStep;
      if constexpr (N == kRows)
        ptx::wgmma_rs<__half, N, ptx::Major::k>(o[b], a[step % 2][b], keys, true);
      else
        ptx::narrow::wgmma_rs<__half, N, ptx::Major::k>(o[b], a[step % 2][b], keys, true);
    }
    ptx::wgmma_commit();
  }
}

/// All products are done.
template <int N>
__device__ __forceinline__ void wait_for_products(Output<N>& o, Scores& s) {
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int b = 0; b < kChunks; ++b) ptx::wgmma_pin(o[b]);
  ptx::wgmma_pin(s);
}

}  // namespace attune::kernels::mla_decode::sm90::e4m3
