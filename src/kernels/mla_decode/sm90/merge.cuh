// Joins the parts of cut strips, in order: a thread block a row, a warp 128 of its columns.
#pragma once

#include "kernels/mla_decode/sm90/collective.cuh"

namespace attune::kernels::mla_decode::sm90 {

inline constexpr int kMergeThreads = 128;

template <class Element>
__device__ __forceinline__ void merge_row(const Params& params, const attention::LatentMerge& merge,
                                          int lane_of_group, int row) {
  constexpr int kAtOnce = 16;  // loads under way
  const RowPlace place = place_of(params, merge.first_block + lane_of_group, row, merge.qo_len);
  if (!place.exists) return;
  const std::int64_t first =
      (std::int64_t{merge.first_place} * params.lanes + lane_of_group) * kRows + row;
  const std::int64_t step = std::int64_t{params.lanes} * kRows;

  // Every warp for itself: lanes share the parts' states.
  float maximum = -INFINITY;
  for (int part = lane(); part < merge.parts; part += 32)
    maximum = fmaxf(maximum, params.partial_maximum[first + part * step]);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, mask));
  const float offset = finite(maximum);
  float sum = 0.0f;
  for (int part = lane(); part < merge.parts; part += 32)
    sum += params.partial_sum[first + part * step] *
           ptx::exp2_approx(params.partial_maximum[first + part * step] - offset);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);

  const int column = warp_of_group() * 128 + 4 * lane();
  float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int begin = 0; begin < merge.parts; begin += kAtOnce) {
    float weights[kAtOnce];
    float4 values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool there = begin + i < merge.parts;
      const std::int64_t at = first + (begin + i) * step;
      weights[i] = there ? params.partial_maximum[at] : -INFINITY;
      values[i] = there ? *reinterpret_cast<const float4*>(params.partial_o + at * kDimVo + column)
                        : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = ptx::exp2_approx(weights[i] - offset);
      o.x = fmaf(weight, values[i].x, o.x);
      o.y = fmaf(weight, values[i].y, o.y);
      o.z = fmaf(weight, values[i].z, o.z);
      o.w = fmaf(weight, values[i].w, o.w);
    }
  }
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

}  // namespace attune::kernels::mla_decode::sm90
