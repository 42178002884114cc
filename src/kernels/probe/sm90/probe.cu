#include "kernels/probe/sm90/probe.hpp"

#include <cuda_bf16.h>

#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::probe::sm90 {
namespace {

constexpr int kWarpgroups = 2;
constexpr int kThreads = 128 * kWarpgroups;
constexpr int kColumns = 256;
constexpr int kDepth = 64;  ///< of the tiles: four products
constexpr int kTileRows = 64 * kWarpgroups + kColumns;
constexpr std::size_t kSharedBytes = std::size_t{kTileRows} * kDepth * sizeof(__nv_bfloat16);

/// Random operands: constant ones draw less power, and the clock would stay higher than in work.
__global__ void __launch_bounds__(kThreads, 1) bf16_kernel(std::int64_t rounds, float* sink) {
  auto* const tiles = reinterpret_cast<std::uint32_t*>(ptx::dynamic_shared<1024>());
  std::uint32_t random = threadIdx.x * 747796405u + 2891336453u;
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kDepth / 2; i += kThreads) {
    float pair[2];
#pragma unroll
    for (float& x : pair) {
      random = random * 1664525u + 1013904223u;
      x = static_cast<float>(static_cast<std::int32_t>(random)) * (1.0f / 2147483648.0f);
    }
    tiles[i] = ptx::pack_pair<__nv_bfloat16>(pair[0], pair[1]);
  }
  ptx::fence_proxy_async();
  __syncthreads();

  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const auto* const a_tile = tiles + warpgroup * 64 * kDepth / 2;
  const auto* const b_tile = tiles + kWarpgroups * 64 * kDepth / 2;
  const std::uint64_t a = ptx::wgmma_descriptor(a_tile);
  const std::uint64_t b = ptx::wgmma_descriptor(b_tile);
  constexpr int kStep = 32 >> 4;  // 16 of the depth, in units of the descriptor
  float sum[kColumns / 2] = {};
  for (std::int64_t r = 0; r < rounds; ++r) {
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      ptx::wgmma_ss<__nv_bfloat16, kColumns, ptx::Major::k, ptx::Major::k>(sum, a + k * kStep,
                                                                           b + k * kStep, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
  }
  ptx::wgmma_wait<0>();
  ptx::wgmma_pin(sum);
  float all = 0.0f;
#pragma unroll
  for (float x : sum) all += x;
  if (all == 12345.0f) *sink = all;
}

}  // namespace

double multiply_bf16(std::int64_t rounds, float* sink, int num_sms, cudaStream_t stream) {
  (void)cudaFuncSetAttribute(ptx::kernel_handle(&bf16_kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kSharedBytes));
  ptx::launch(bf16_kernel, dim3(static_cast<unsigned>(num_sms)), dim3(kThreads), kSharedBytes,
              stream, rounds, sink);
  return 2.0 * 64 * kWarpgroups * kColumns * kDepth * num_sms * static_cast<double>(rounds);
}

}  // namespace attune::kernels::probe::sm90
