#include "kernels/ops/cuda/hyper.hpp"

#include <cmath>

#include <cuda_runtime.h>

#include "base/math.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 256;

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// A warp a row, a lane a row or a column of comb.
__global__ void __launch_bounds__(32 * kWarps)
    weights_kernel(Hyper p, bool pre_alone, HyperRows weights, std::int64_t num_rows) {
  __shared__ float combs[kWarps][kMostStreams * kMostStreams];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t r = blockIdx.x * std::int64_t{kWarps} + warp;
  if (r >= num_rows) return;
  float* const row = weights.data + r * weights.stride;
  float* const comb = combs[warp];
  const int n = p.streams;
  const bool mine = lane < n;
  if (mine) row[lane] = sigmoid(row[lane] * p.scale[0] + p.base[lane]) + p.eps;
  if (pre_alone) return;
  if (mine) {
    const int post = n + lane;
    row[post] = 2.0f * sigmoid(row[post] * p.scale[1] + p.base[post]);
    const int first = (2 + lane) * n;
    float top = -INFINITY;
    for (int k = 0; k < n; ++k) {
      comb[lane * n + k] = row[first + k] * p.scale[2] + p.base[first + k];
      top = fmaxf(top, comb[lane * n + k]);
    }
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += comb[lane * n + k] = expf(comb[lane * n + k] - top);
    for (int k = 0; k < n; ++k) comb[lane * n + k] = comb[lane * n + k] / sum + p.eps;
  }
  // Sums of 1, of columns and of rows in turns, columns first and last.
  const auto divide = [&](int of_lane, int step) {
    __syncwarp();
    if (!mine) return;
    float* const line = comb + lane * of_lane;
    float sum = p.eps;
    for (int i = 0; i < n; ++i) sum += line[i * step];
    for (int i = 0; i < n; ++i) line[i * step] /= sum;
  };
  divide(1, n);
  for (int turn = 1; turn < p.iterations; ++turn) {
    divide(n, 1);
    divide(1, n);
  }
  __syncwarp();
  for (int i = lane; i < n * n; i += 32) row[2 * n + i] = comb[i];
}

__global__ void __launch_bounds__(kThreads)
    collapse_kernel(HyperRows streams, HyperRows pre, int n, HyperRows out, std::int64_t width) {
  const std::int64_t r = blockIdx.x;
  const std::int64_t d = blockIdx.y * std::int64_t{kThreads} + threadIdx.x;
  if (d >= width) return;
  const float* const weights = pre.data + r * pre.stride;
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) sum += weights[i] * streams.data[r * streams.stride + i * width + d];
  out.data[r * out.stride + d] = sum;
}

/// All streams of a number are read before any is written.
__global__ void __launch_bounds__(kThreads)
    expand_kernel(HyperRows x, HyperRows post, HyperRows comb, int n, HyperRows streams,
                  std::int64_t width) {
  const std::int64_t r = blockIdx.x;
  const std::int64_t d = blockIdx.y * std::int64_t{kThreads} + threadIdx.x;
  if (d >= width) return;
  float* const mine = streams.data + r * streams.stride + d;
  const float* const factors = post.data + r * post.stride;
  const float* const mix = comb.data + r * comb.stride;
  const float branch = x.data[r * x.stride + d];
  float old[kMostStreams];
#pragma unroll
  for (int i = 0; i < kMostStreams; ++i) old[i] = i < n ? mine[i * width] : 0.0f;
  for (int k = 0; k < n; ++k) {
    float sum = factors[k] * branch;
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i)
      if (i < n) sum += mix[i * n + k] * old[i];
    mine[k * width] = sum;
  }
}

dim3 grid_of(std::int64_t num_rows, std::int64_t width) {
  return dim3(static_cast<unsigned>(num_rows),
              static_cast<unsigned>(base::ceil_div<std::int64_t>(width, kThreads)));
}

}  // namespace

void hyper_weights(const Hyper& hyper, bool pre_alone, const HyperRows& weights,
                   std::int64_t num_rows, cudaStream_t stream) {
  if (num_rows > 0)
    ptx::launch(weights_kernel,
                static_cast<unsigned>(base::ceil_div<std::int64_t>(num_rows, kWarps)), 32 * kWarps,
                0, stream, hyper, pre_alone, weights, num_rows);
}

void hyper_collapse(const HyperRows& streams, const HyperRows& pre, int num_streams,
                    const HyperRows& out, std::int64_t num_rows, std::int64_t width,
                    cudaStream_t stream) {
  if (num_rows > 0)
    ptx::launch(collapse_kernel, grid_of(num_rows, width), kThreads, 0, stream, streams, pre,
                num_streams, out, width);
}

void hyper_expand(const HyperRows& x, const HyperRows& post, const HyperRows& comb, int num_streams,
                  const HyperRows& streams, std::int64_t num_rows, std::int64_t width,
                  cudaStream_t stream) {
  if (num_rows > 0)
    ptx::launch(expand_kernel, grid_of(num_rows, width), kThreads, 0, stream, x, post, comb,
                num_streams, streams, width);
}

}  // namespace attune::kernels::ops::cuda
