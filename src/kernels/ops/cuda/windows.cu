#include "kernels/ops/cuda/windows.hpp"

#include <cmath>

#include <cuda_runtime.h>

#include "base/math.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kAtOnce = 8;  ///< rows of a window that a thread has under way

__device__ __forceinline__ float* ring_row(const WindowRows& rows, int slot, int position) {
  return rows.rings + slot * rows.slot_stride + position % rows.ring * rows.ring_stride;
}

/// A thread's channel of rows of one series: their softmax so far.
struct Pooled {
  float maximum = -INFINITY;
  float weights = 0.0f;
  float sum = 0.0f;

  __device__ __forceinline__ void add(const float (&gates)[kAtOnce],
                                      const float (&values)[kAtOnce]) {
    float top = maximum;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) top = fmaxf(top, gates[i]);
    if (top == -INFINITY) return;
    const float factor = expf(maximum - top);
    maximum = top;
    weights *= factor;
    sum *= factor;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = expf(gates[i] - top);
      weights += weight;
      sum += weight * values[i];
    }
  }
};

/// A thread a channel of a token.
__global__ void __launch_bounds__(kThreads)
    pool_kernel(WindowPool pool, WindowRows rows, float* out, std::int64_t out_stride) {
  const std::int64_t r = blockIdx.x;
  const int channel = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (channel >= pool.dim) return;
  const WindowToken token = rows.tokens[r];
  const int ratio = static_cast<int>(pool.ratio);
  float* const to = out + r * out_stride + channel;
  if (token.state < 0 || (token.position + 1) % ratio != 0) {
    *to = 0.0f;
    return;
  }
  const auto row_of = [&](int position) -> const float* {
    const int back = token.position - position;
    return back > token.row ? ring_row(rows, token.state, position)
                            : rows.projected + (r - back) * rows.projected_stride;
  };
  Pooled pooled;
  const auto take = [&](int first, std::int64_t column) {
    for (int begin = 0; begin < ratio; begin += kAtOnce) {
      float gates[kAtOnce];
      float values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const bool exists = begin + i < ratio;
        const float* const row = row_of(first + (exists ? begin + i : 0));
        const float bias = pool.bias[(exists ? begin + i : 0) * pool.series() * pool.dim + column];
        gates[i] = exists ? row[pool.gates + column] + bias : -INFINITY;
        values[i] = exists ? row[pool.values + column] : 0.0f;
      }
      pooled.add(gates, values);
    }
  };
  const int own = token.position + 1 - ratio;
  // Nothing comes before the first window.
  if (pool.overlap && own > 0) take(own - ratio, channel);
  take(own, (pool.series() - 1) * pool.dim + channel);
  *to = pooled.sum / pooled.weights;
}

/// A block a token: into the rings, unless a later row of its request takes the place. The first row
/// of a request that has drafts brings along what none of its rows writes.
__global__ void __launch_bounds__(kThreads) keep_kernel(WindowRows rows) {
  const std::int64_t r = blockIdx.x;
  const WindowToken token = rows.tokens[r];
  if (token.state < 0) return;
  const int ring = static_cast<int>(rows.ring);
  const int width = static_cast<int>(rows.width);
  const float* const from = rows.projected + r * rows.projected_stride;
  const auto enter = [&](int slot, int count) {
    if (slot < 0 || token.row >= count || token.row + ring < count) return;
    float* const to = ring_row(rows, slot, token.position);
    for (int c = static_cast<int>(threadIdx.x); c < width; c += kThreads) to[c] = from[c];
  };
  enter(token.state, token.known_rows);
  enter(token.draft_state, token.num_rows);
  if (token.row > 0 || token.draft_state < 0) return;
  for (int place = token.num_rows; place < ring; ++place) {
    const float* const old = ring_row(rows, token.state, token.position + place);
    float* const to = ring_row(rows, token.draft_state, token.position + place);
    for (int c = static_cast<int>(threadIdx.x); c < width; c += kThreads) to[c] = old[c];
  }
}

}  // namespace

void pool_windows(const WindowPool& pool, const WindowRows& rows, float* out,
                  std::int64_t out_stride, cudaStream_t stream) {
  if (rows.num_tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(rows.num_tokens),
                  static_cast<unsigned>(base::ceil_div<std::int64_t>(pool.dim, kThreads)));
  ptx::launch(pool_kernel, grid, kThreads, 0, stream, pool, rows, out, out_stride);
}

void keep_windows(const WindowRows& rows, cudaStream_t stream) {
  if (rows.num_tokens > 0)
    ptx::launch(keep_kernel, static_cast<unsigned>(rows.num_tokens), kThreads, 0, stream, rows);
}

}  // namespace attune::kernels::ops::cuda
