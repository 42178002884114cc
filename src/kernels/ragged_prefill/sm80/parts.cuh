// Short query blocks split their keys over CTAs (flash decoding): parts are kept in memory, and
// whoever comes last joins them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ptx/atomic.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ragged_prefill/sm80/fragments.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

template <class Policy>
class Parts {
  using F = Fragments<Policy>;
  using State = typename F::State;
  static constexpr int kRowBlocks = F::kRowBlocks;
  static constexpr int kDimBlocks = F::kDimBlocks;

 public:
  __device__ explicit Parts(const Work& work) : work_(work) {}

  __device__ void keep(const State& state) const {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::int64_t row = partial_row(work_.item->part, work_.fragment_row<Policy>(m, i));
        if (work_.lane % 4 == 0 && work_.dim_part<Policy>() == 0)
          work_.p.partial_state[row] = make_float2(state.maximum[m][i], state.sum[m][i]);
          // The order of a row's numbers is the fragments', the same for every part.
#pragma unroll
        for (int d = 0; d < kDimBlocks; ++d)
          *reinterpret_cast<float2*>(partial_o(row) + 8 * d) =
              make_float2(state.o[m][d][2 * i], state.o[m][d][2 * i + 1]);
      }
  }

  __device__ bool is_last_to_arrive() const {
    __shared__ int is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
      std::int32_t* counter =
          work_.p.arrivals +
          static_cast<std::int64_t>(work_.item->first_place) * work_.p.num_kv_heads + work_.kv_head;
      const std::int32_t before = ptx::arrive_at(counter);
      is_last = before == work_.item->parts - 1 ? 1 : 0;
      if (is_last != 0) *counter = 0;
    }
    __syncthreads();
    return is_last != 0;
  }

  /// All parts in order, so that the bits do not depend on who came last.
  __device__ void join(State& state) const {
    const int parts = work_.item->parts;
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row_of_block = work_.fragment_row<Policy>(m, i);
        float top = -INFINITY;
        for (int part = 0; part < parts; ++part)
          top = fmaxf(top, __ldcg(work_.p.partial_state + partial_row(part, row_of_block)).x);
        const float shift = top == -INFINITY ? 0.0f : top;
        state.maximum[m][i] = top;
        state.sum[m][i] = 0.0f;
#pragma unroll
        for (int d = 0; d < kDimBlocks; ++d) state.o[m][d][2 * i] = state.o[m][d][2 * i + 1] = 0.0f;
        for (int part = 0; part < parts; ++part) {
          const std::int64_t row = partial_row(part, row_of_block);
          const float2 kept = __ldcg(work_.p.partial_state + row);
          const float weight = ptx::exp2_approx(kept.x - shift);
          state.sum[m][i] += weight * kept.y;
#pragma unroll
          for (int d = 0; d < kDimBlocks; ++d) {
            const float2 v = __ldcg(reinterpret_cast<const float2*>(partial_o(row) + 8 * d));
            state.o[m][d][2 * i] += weight * v.x;
            state.o[m][d][2 * i + 1] += weight * v.y;
          }
        }
      }
  }

 private:
  /// Place of part `part`'s row of the block.
  __device__ std::int64_t partial_row(int part, int row) const {
    const std::int64_t place =
        static_cast<std::int64_t>(work_.item->first_place + part) * work_.p.num_kv_heads +
        work_.kv_head;
    return place * Policy::kRows + row;
  }

  /// The lane's first pair of a kept row's outputs.
  __device__ float* partial_o(std::int64_t row) const {
    return work_.p.partial_o + row * Policy::kDimVo +
           work_.dim_part<Policy>() * (Policy::kDimVo / Policy::kDimParts) + 2 * (work_.lane % 4);
  }

  const Work& work_;
};

}  // namespace attune::kernels::ragged_prefill::sm80
