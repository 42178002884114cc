// How an item of few rows ends: sums joined, the part kept or met, or the rows written.
#pragma once

#include "kernels/mla_decode/sm90/few_collective.cuh"
#include "kernels/mla_decode/sm90/producer.cuh"

namespace attune::kernels::mla_decode::sm90::few {

/// Maximum and sum of the rows that the thread speaks for, at a place.
template <int Rows>
__device__ __forceinline__ void keep_state(const Params& params, std::int64_t place,
                                           const RowState<Rows>& state) {
  if (threadIdx.x >= 4) return;
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      params.partial_maximum[place * Rows + row_of(c) + e] = state.maximum[c][e];
      params.partial_sum[place * Rows + row_of(c) + e] = state.sum[c][e];
    }
}

/// The second of two parts takes in what the first, which is at work already, leaves. Without a
/// meeting nothing changes: no branch may write accumulators (sm90/kernel.cuh).
template <int Rows>
__device__ __forceinline__ void take_first(const Params& params, std::int64_t place,
                                           std::int32_t* counter, bool meeting,
                                           RowState<Rows>& state, Output<Rows>& o) {
  RowValues<Rows> own;
  RowValues<Rows> other;
  if (meeting) {
    if (threadIdx.x == 0) {
      ptx::wait_for(counter, kAllArrived);
      *counter = 0;
    }
    meet_group();
  }
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      own[c][e] = 1.0f;
      other[c][e] = 0.0f;
      if (!meeting) continue;
      const std::int64_t row = place * Rows + row_of(c) + e;
      const float theirs = __ldcg(params.partial_maximum + row);
      const float maximum = fmaxf(state.maximum[c][e], theirs);
      own[c][e] = ptx::exp2_approx(state.maximum[c][e] - finite(maximum));
      other[c][e] = ptx::exp2_approx(theirs - finite(maximum));
      state.maximum[c][e] = maximum;
      state.sum[c][e] = __fadd_rn(__fmul_rn(state.sum[c][e], own[c][e]),
                                  __fmul_rn(__ldcg(params.partial_sum + row), other[c][e]));
    }
  add_part<Rows>(o, params.partial_o + place * Rows * kDimVo, meeting, own, other);
}

/// Divides by the sums and writes the rows and their state, or what becomes of a part. `Layout`
/// says which columns are where.
template <class Layout, bool Sinks, class Element, int Rows>
__device__ __forceinline__ void finish(float (&sums)[4][Rows], std::int32_t arrival,
                                       const Params& params, const attention::LatentItem& item,
                                       int block, int lane_of_group, RowState<Rows>& state,
                                       Output<Rows>& o) {
  const std::int64_t place = std::int64_t{item.place} * params.lanes + lane_of_group;
  const bool keeps = item.place >= 0 && item.meeting < 0;
  // On their way while the sums are joined.
  if (keeps)
    for_each_row_of_part<Rows>(params, place, [&](float* row, int c, int e) {
      Layout::template write_partial<Rows>(o, row, c, e);
    });
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c) {
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2)
        state.sum[c][e] += __shfl_xor_sync(kAllLanes, state.sum[c][e], mask);
    if (lane() < 4)
      *reinterpret_cast<float2*>(&sums[warp()][row_of(c)]) =
          make_float2(state.sum[c][0], state.sum[c][1]);
  }
  meet_group();
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = row_of(c) + e;
      state.sum[c][e] = sums[0][row] + sums[1][row] + (sums[2][row] + sums[3][row]);
    }

  if (keeps) return keep_state(params, place, state);
  std::int32_t* const counter = counter_of(params, item, lane_of_group);
  if (item.meeting >= 0 && arrival == 0) {
    leave_part<Rows>(o, params.partial_o + place * Rows * kDimVo);
    keep_state(params, place, state);
    meet_group();
    if (threadIdx.x == 0) ptx::arrive_at(counter);
    return;
  }
  take_first<Rows>(params, place, counter, item.meeting >= 0, state, o);
  RowValues<Rows> inverse;
#pragma unroll
  for (int c = 0; c < Rows / 8; ++c)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool empty = state.maximum[c][e] == -INFINITY;
      const RowPlace at = place_of(params, block, row_of(c) + e, item.qo_len);
      inverse[c][e] =
          inverse_of<Sinks>(params, state.maximum[c][e], state.sum[c][e], at.exists ? at.head : 0);
      if (params.lse != nullptr && threadIdx.x < 4 && at.exists)
        params.lse[static_cast<std::int64_t>(item.q_token + at.token) * params.lse_token_stride +
                   at.head * params.lse_head_stride] =
            empty ? -INFINITY : (state.maximum[c][e] + log2f(state.sum[c][e])) * kLn2;
    }
  rescale<Rows>(o, inverse);
  Layout::template write_output<Element, Rows>(o, params, item, block);
}

}  // namespace attune::kernels::mla_decode::sm90::few
