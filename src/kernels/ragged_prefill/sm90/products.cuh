// A consumer warpgroup's two products.
//
// Thread t holds rows t / 4 % 8 + 16 (warp) + 8 h, h in {0, 1}, of the warpgroup's 64, and of each
// 8-column block the columns 2 (t % 4) + {0, 1}: register 4 block + 2 h + e (ptx/wgmma.cuh).
#pragma once

#include <cstdint>

#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/ragged_prefill/sm90/config.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

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

/// Output accumulators: the last 64 columns with the row sums behind them, and the columns before;
/// all columns where sums are additions.
template <class C>
struct Accumulators {
  float low[C::kLowColumns == 0 ? 1 : C::kLowColumns / 2];
  float high[C::kHighColumns == 0 ? 1 : C::kHighColumns / 2];

  /// Elements 2 h and 2 h + 1 of this thread's share of an 8-column block.
  __device__ __forceinline__ float& at(int block, int i) {
    constexpr int kLowBlocks = C::kLowColumns / 8;
    return block < kLowBlocks ? low[4 * block + i] : high[4 * (block - kLowBlocks) + i];
  }
  __device__ __forceinline__ float sum(int h) const { return high[32 + 2 * h]; }

  __device__ __forceinline__ void pin() {
    if constexpr (C::kLowColumns > 0) ptx::wgmma_pin(low);
    if constexpr (C::kHighColumns > 0) ptx::wgmma_pin(high);
  }
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    if constexpr (C::kLowColumns > 0) {
#pragma unroll
      for (int i = 0; i < C::kLowColumns / 2; ++i) low[i] *= factor[i / 2 % 2];
    }
    if constexpr (C::kHighColumns > 0) {
#pragma unroll
      for (int i = 0; i < C::kHighColumns / 2; ++i) high[i] *= factor[i / 2 % 2];
    }
  }
};

/// Descriptors of a value tile: of its first panel, and of its last, whose neighbour is the ones
/// (where sums are products).
struct ValueDescriptors {
  std::uint64_t low;
  std::uint64_t high;
};

template <class C>
__device__ __forceinline__ ValueDescriptors value_descriptors(const SharedOf<C>& shared) {
  constexpr int kPanel = C::kKeyTile * 64;
  if constexpr (C::kAddsUp) return {ptx::wgmma_descriptor(shared.v[0], kPanel * 2), 0};
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
    if constexpr (C::kHighColumns > 0) {
      ptx::wgmma_rs<Element, C::kHighColumns, ptx::Major::mn>(
          o.high, p[step], high + step * (kKeys16 - (kKeys16 << 16)), accumulate || step > 0);
    }
  }
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
