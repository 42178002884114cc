// How an item of queries in e4m3 ends: sums joined, the part kept or met, or the rows written.
#pragma once

#include "kernels/mla_decode/sm90/e4m3_collective.cuh"
#include "kernels/mla_decode/sm90/producer.cuh"

namespace attune::kernels::mla_decode::sm90::e4m3 {

/// The first of the thread's columns in chunk b.
__device__ __forceinline__ int column_of(int w, int b) {
  return w * (kDimVo / kGroups) + 64 * warp_of_group() + 16 * b + 2 * (lane() / 4);
}

/// each(row, c, e) for the thread's rows of the block that exist.
template <int N, class Each>
__device__ __forceinline__ void for_each_row(const Params& params,
                                             const attention::LatentItem& item, int block,
                                             Each each) {
#pragma unroll
  for (int c = 0; c < N / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = 8 * c + 2 * (lane() % 4) + e;
      const RowPlace place = place_of(params, block, row, item.qo_len);
      if (place.exists) each(row, place, c, e);
    }
}

/// A part of a cut strip for the merge kernel, in fp32.
template <int N>
__device__ __forceinline__ void write_partial(const Output<N>& o, const Params& params,
                                              const attention::LatentItem& item, int block,
                                              float* part, int w) {
  for_each_row<N>(params, item, block, [&](int row, const RowPlace&, int c, int e) {
#pragma unroll
    for (int b = 0; b < kChunks; ++b)
      *reinterpret_cast<float2*>(part + row * kDimVo + column_of(w, b)) =
          make_float2(o[b][4 * c + e], o[b][4 * c + 2 + e]);
  });
}

/// A part for a meeting: every thread's registers, for the same thread of the other block.
template <int N>
__device__ __forceinline__ float4* part_of_thread(float* part, int b, int c) {
  return reinterpret_cast<float4*>(part) + (b * (N / 8) + c) * kConsumers + threadIdx.x;
}
template <int N>
__device__ __forceinline__ void leave_part(const Output<N>& o, float* part) {
#pragma unroll
  for (int b = 0; b < kChunks; ++b)
#pragma unroll
    for (int c = 0; c < N / 8; ++c)
      *part_of_thread<N>(part, b, c) =
          make_float4(o[b][4 * c], o[b][4 * c + 1], o[b][4 * c + 2], o[b][4 * c + 3]);
}

/// The finished rows, times what `own` says, and where there is a `part`, that times `other`. Both
/// products are rounded before the sum, so that it does not matter which part came first.
template <int N>
__device__ __forceinline__ void write_output(const Output<N>& o, const Shared& shared,
                                             const Params& params,
                                             const attention::LatentItem& item, int block,
                                             float* part, int w) {
#pragma unroll
  for (int c = 0; c < N / 8; ++c) {
    const float2 own = pair_of(shared.own, c);
    const float2 other = pair_of(shared.other, c);
    float x[kChunks][4];
#pragma unroll
    for (int b = 0; b < kChunks; ++b) {
      const float4 theirs = part == nullptr ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
                                            : __ldcg(part_of_thread<N>(part, b, c));
      x[b][0] = __fadd_rn(__fmul_rn(o[b][4 * c], own.x), __fmul_rn(theirs.x, other.x));
      x[b][1] = __fadd_rn(__fmul_rn(o[b][4 * c + 1], own.y), __fmul_rn(theirs.y, other.y));
      x[b][2] = __fadd_rn(__fmul_rn(o[b][4 * c + 2], own.x), __fmul_rn(theirs.z, other.x));
      x[b][3] = __fadd_rn(__fmul_rn(o[b][4 * c + 3], own.y), __fmul_rn(theirs.w, other.y));
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const RowPlace place = place_of(params, block, 8 * c + 2 * (lane() % 4) + e, item.qo_len);
      if (!place.exists) continue;
      auto* const out =
          static_cast<__nv_bfloat16*>(params.o) +
          static_cast<std::int64_t>(item.q_token + place.token) * params.o_token_stride +
          place.head * params.o_head_stride;
#pragma unroll
      for (int b = 0; b < kChunks; ++b)
        *reinterpret_cast<std::uint32_t*>(out + column_of(w, b)) =
            ptx::pack_pair<__nv_bfloat16>(x[b][e], x[b][2 + e]);
    }
  }
}

/// What the block's rows are divided by, and their lse; `theirs`: where a met part's states lie.
/// For the threads of warpgroup 0 that speak for rows.
__device__ __forceinline__ void weigh_rows(Shared& shared, const Params& params,
                                           const attention::LatentItem& item, const Rows& rows,
                                           const RowState& state, std::int64_t theirs) {
  const int first = 16 * warp_of_group() + lane() / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first + 8 * h;
    float maximum = state.maximum[h];
    float sum = shared.sum[0][row] + shared.sum[1][row];
    float own = 1.0f;
    float other = 0.0f;
    if (theirs >= 0) {
      const float top = __ldcg(params.partial_maximum + theirs + row);
      const float joined = fmaxf(maximum, top);
      own = ptx::exp2_approx(maximum - finite(joined));
      other = ptx::exp2_approx(top - finite(joined));
      sum = __fadd_rn(__fmul_rn(sum, own),
                      __fmul_rn(__ldcg(params.partial_sum + theirs + row), other));
      maximum = joined;
    }
    const float inverse = inverse_of<false>(params, maximum, sum, 0);
    shared.own[row] = own * inverse;
    shared.other[row] = other * inverse;
    if (params.lse != nullptr && rows.exists[h])
      params.lse[static_cast<std::int64_t>(item.q_token + rows.token[h]) * params.lse_token_stride +
                 rows.head[h] * params.lse_head_stride] =
          maximum == -INFINITY ? -INFINITY : (maximum + log2f(sum)) * kLn2;
  }
}

/// Divides by the sums and writes the rows and their state, or what becomes of a part.
template <int N>
__device__ __forceinline__ void finish(Shared& shared, std::int32_t arrival, const Params& params,
                                       const attention::LatentItem& item, int block,
                                       const Rows& rows, RowState& state, const Output<N>& o,
                                       int lane_of_group, int w) {
  const int first = 16 * warp_of_group() + lane() / 4;
  const bool meeting = item.meeting >= 0;
  const bool speaks = w == 0 && lane() % 4 == 0 && 16 * warp_of_group() < N;
  const std::int64_t place = std::int64_t{item.place} * params.lanes + lane_of_group;
  float* const part = params.partial_o + place * N * kDimVo;
  std::int32_t* const counter = counter_of(params, item, lane_of_group);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.sum[h] += __shfl_xor_sync(kAllLanes, state.sum[h], 1);
    state.sum[h] += __shfl_xor_sync(kAllLanes, state.sum[h], 2);
    if (lane() % 4 == 0) shared.sum[w][first + 8 * h] = state.sum[h];
  }
  ptx::named_barrier_sync(kConsumerBarrier, kConsumers);

  if (item.place >= 0 && !(meeting && arrival != 0)) {
    if (speaks)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first + 8 * h;
        params.partial_maximum[place * N + row] = state.maximum[h];
        params.partial_sum[place * N + row] = shared.sum[0][row] + shared.sum[1][row];
      }
    if (!meeting) return write_partial<N>(o, params, item, block, part, w);
    // The first of two parts to come: leaves its rows at the place and says so.
    leave_part<N>(o, part);
    ptx::named_barrier_sync(kConsumerBarrier, kConsumers);
    if (threadIdx.x == 0) ptx::arrive_at(counter);
    return;
  }
  // The second waits for what the first, which is at work already, leaves.
  if (meeting) {
    if (threadIdx.x == 0) {
      ptx::wait_for(counter, kAllArrived);
      *counter = 0;
    }
    ptx::named_barrier_sync(kConsumerBarrier, kConsumers);
  }
  if (speaks) weigh_rows(shared, params, item, rows, state, meeting ? place * N : -1);
  ptx::named_barrier_sync(kConsumerBarrier, kConsumers);
  write_output<N>(o, shared, params, item, block, meeting ? part : nullptr, w);
}

}  // namespace attune::kernels::mla_decode::sm90::e4m3
