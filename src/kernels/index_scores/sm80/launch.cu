#include "kernels/index_scores/sm80/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "base/math.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::index_scores::sm80 {
namespace {

constexpr int kWarps = 4;
constexpr int kKeys = 4;  ///< of a warp at a time: a number of the query meets one of each
constexpr unsigned kAllLanes = 0xffffffffu;

/// Heads are lanes, as on CPUs: only a finished score is summed across them.
template <class Element>
__global__ void __launch_bounds__(32 * kWarps) index_scores(const __grid_constant__ Params p) {
  const int token = p.first_token + static_cast<int>(blockIdx.x);
  const int visible = p.visible[token];
  if (visible <= p.topk) return;
  const int width = (p.num_heads + 31) / 32 * 32;
  auto* const query = reinterpret_cast<float*>(ptx::dynamic_shared<128>());  // [head_dim, width]
  float* const weights = query + p.head_dim * width;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* const rows = weights + width + warp * kKeys * p.head_dim;

  const auto* const q = static_cast<const Element*>(p.q) + token * p.q_token_stride;
  for (int at = static_cast<int>(threadIdx.x); at < width * p.head_dim; at += 32 * kWarps) {
    const int head = at / p.head_dim;
    const int d = at - head * p.head_dim;
    query[d * width + head] =
        head < p.num_heads ? static_cast<float>(q[head * p.q_head_stride + d]) : 0.0f;
  }
  for (int head = static_cast<int>(threadIdx.x); head < width; head += 32 * kWarps)
    weights[head] = head < p.num_heads ? p.weights[token * p.weights_stride + head] : 0.0f;
  __syncthreads();

  const std::int32_t* const pages = p.kv_indices + p.entry_begin[token];
  float* const scores = p.scores + static_cast<std::int64_t>(blockIdx.x) * p.scores_stride;
  const int step = static_cast<int>(gridDim.y) * kWarps * kKeys;
  for (int first = (static_cast<int>(blockIdx.y) * kWarps + warp) * kKeys; first < visible;
       first += step) {
    for (int i = 0; i < kKeys; ++i) {
      // Behind the last key its score is made again, and forgotten.
      const int key = min(first + i, visible - 1);
      const int entry = key / p.page_size;
      const auto* const from = static_cast<const Element*>(p.keys) + pages[entry] * p.page_stride +
                               (key - entry * p.page_size) * p.token_stride;
      for (int d = lane; d < p.head_dim; d += 32)
        rows[i * p.head_dim + d] = static_cast<float>(from[d]);
    }
    __syncwarp();
    float totals[kKeys] = {};
    for (int head = lane; head < width; head += 32) {
      float sums[kKeys] = {};
#pragma unroll 4
      for (int d = 0; d < p.head_dim; ++d) {
        const float x = query[d * width + head];
#pragma unroll
        for (int i = 0; i < kKeys; ++i) sums[i] = fmaf(x, rows[i * p.head_dim + d], sums[i]);
      }
#pragma unroll
      for (int i = 0; i < kKeys; ++i)
        totals[i] = fmaf(weights[head], sums[i] > 0.0f ? sums[i] : 0.0f, totals[i]);
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2)
        totals[i] += __shfl_xor_sync(kAllLanes, totals[i], mask);
      if (lane == 0 && first + i < visible) scores[first + i] = totals[i];
    }
    __syncwarp();  // before the next keys take the rows' place
  }
}

}  // namespace

int shared_bytes(int num_heads, int head_dim) {
  const int width = base::round_up(num_heads, 32);
  return (width * head_dim + width + kWarps * kKeys * head_dim) * static_cast<int>(sizeof(float));
}

Status launch(DType dtype, const Params& params, int blocks, cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  const auto kernel = dtype == DType::f16 ? index_scores<__half> : index_scores<__nv_bfloat16>;
  // There may be more tokens than the 65 535 of a grid's second dimension.
  const dim3 grid(static_cast<unsigned>(params.num_tokens), static_cast<unsigned>(blocks));
  ptx::launch(kernel, grid, 32 * kWarps,
              static_cast<std::size_t>(shared_bytes(params.num_heads, params.head_dim)), stream,
              params);
  return base::cuda::launch_status("index_scores");
}

}  // namespace attune::kernels::index_scores::sm80
