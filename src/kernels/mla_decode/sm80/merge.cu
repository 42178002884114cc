// Joins the parts of cut strips, in order: a thread block a row, a warp 128 of its columns.
#include "kernels/mla_decode/sm80/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/mla_decode/rows.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::mla_decode::sm80 {
namespace {

constexpr int kMergeThreads = 128;
constexpr int kAtOnce = 8;  ///< parts under way

template <class Element>
__device__ __forceinline__ void merge_row(const Params& params, const attention::LatentMerge& merge,
                                          int lane_of_group, int row) {
  const RowPlace place = place_of(params, merge.first_block + lane_of_group, row, merge.qo_len);
  if (!place.exists) return;
  const std::int64_t first =
      (std::int64_t{merge.first_place} * params.lanes + lane_of_group) * params.block_rows + row;
  const std::int64_t step = std::int64_t{params.lanes} * params.block_rows;

  // Every warp for itself: a lane knows the states of one part in 32.
  float maximum = -INFINITY;
  for (int part = lane(); part < merge.parts; part += 32)
    maximum = fmaxf(maximum, params.partial_maximum[first + part * step]);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, mask));
  const float offset = finite(maximum);
  const int column = 4 * static_cast<int>(threadIdx.x);
  auto* places = reinterpret_cast<float4*>(ptx::dynamic_shared<128>()) + threadIdx.x;
  float sum = 0.0f;
  float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int block = 0; block < merge.parts; block += 32) {
    const int mine = block + lane();
    float weight = 0.0f;
    if (mine < merge.parts) {
      weight = ptx::exp2_approx(params.partial_maximum[first + mine * step] - offset);
      sum += weight * params.partial_sum[first + mine * step];
    }
    for (int begin = 0; begin < min(32, merge.parts - block); begin += kAtOnce) {
      // Through shared memory, a thread's own places: copies that nobody waits for until all are
      // under way, which ptxas does not grant to loads.
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int part = block + begin + i;
        ptx::cp_async_16(places + i * kMergeThreads,
                         params.partial_o + (first + part * step) * kDimVo + column,
                         part < merge.parts);
      }
      ptx::cp_async_commit();
      ptx::cp_async_wait<0>();
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float w = __shfl_sync(kAllLanes, weight, begin + i);
        const float4 value = places[i * kMergeThreads];
        o.x = fmaf(w, value.x, o.x);
        o.y = fmaf(w, value.y, o.y);
        o.z = fmaf(w, value.z, o.z);
        o.w = fmaf(w, value.w, o.w);
      }
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);
  const bool empty = maximum == -INFINITY;
  const float inverse = empty ? 0.0f : params.v_scale / sum;
  const std::int64_t token = merge.q_token + place.token;
  auto* out = static_cast<Element*>(params.o) + token * params.o_token_stride +
              place.head * params.o_head_stride + column;
  *reinterpret_cast<uint2*>(out) =
      make_uint2(ptx::pack_pair<Element>(o.x * inverse, o.y * inverse),
                 ptx::pack_pair<Element>(o.z * inverse, o.w * inverse));
  if (params.lse != nullptr && threadIdx.x == 0)
    params.lse[token * params.lse_token_stride + place.head * params.lse_head_stride] =
        empty ? -INFINITY : (maximum + log2f(sum)) * kLn2;
}

template <class Element>
__global__ void __launch_bounds__(kMergeThreads) mla_merge(const __grid_constant__ Params params) {
  ptx::dependency_release();
  ptx::dependency_wait();
  const int rows = params.heads_per_block * params.tokens_per_block;
  const int total = params.work->num_merges * params.lanes * rows;
  for (int i = static_cast<int>(blockIdx.x); i < total; i += static_cast<int>(gridDim.x)) {
    const int strip_lane = i / rows;
    const int merge = strip_lane / params.lanes;
    merge_row<Element>(params, params.merges[merge], strip_lane - merge * params.lanes,
                       i - strip_lane * rows);
  }
}

}  // namespace

cudaError_t start_merge(DType dtype, int blocks, const Params& params, bool overlap,
                        cudaStream_t stream) {
  Params copy = params;
  void* arguments[] = {&copy};
  return start({.kernel = dtype == DType::f16 ? ptx::kernel_handle(&mla_merge<__half>)
                                              : ptx::kernel_handle(&mla_merge<__nv_bfloat16>),
                .blocks = blocks,
                .threads = kMergeThreads,
                .shared_bytes = kAtOnce * kMergeThreads * static_cast<int>(sizeof(float4))},
               arguments, overlap, stream);
}

}  // namespace attune::kernels::mla_decode::sm80
