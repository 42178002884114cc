// Rows of o and lse on their way to memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ragged_prefill/sm80/sight.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

template <class Kv, class Policy>
class Output {
  using F = Fragments<Policy>;
  using State = typename F::State;
  static constexpr int kRowBlocks = F::kRowBlocks;
  static constexpr int kDimBlocks = F::kDimBlocks;

 public:
  __device__ Output(const Work& work, const Sight<Policy>& sight) : work_(work), sight_(sight) {}

  __device__ void write(const State& state) const {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        write_row(state.o[m], i, state.maximum[m][i], state.sum[m][i],
                  sight_.row_of(work_.fragment_row<Policy>(m, i)));
  }

 private:
  /// Dims of the pair that the lane holds in o[d] and, for fp8, in o[d + 1] as well: (first, step).
  __device__ int dim_of(int d, int e) const {
    const int first = work_.dim_part<Policy>() * (Policy::kDimVo / Policy::kDimParts);
    if constexpr (kIsFp8<Kv>) return first + 16 * (d / 2) + 4 * (work_.lane % 4) + 2 * e + d % 2;
    return first + 8 * d + 2 * (work_.lane % 4) + e;
  }

  __device__ void write_row(const float (&o)[kDimBlocks][4], int i, float maximum, float sum,
                            const Row& r) const {
    if (!r.valid) return;
    float factor = 0.0f;
    float lse = -INFINITY;
    if (sum > 0.0f) {
      lse = (maximum + __log2f(sum)) * kLn2;
      factor = __fdividef(work_.p.v_scale, sum);
      if (work_.p.v_scale_per_head != nullptr) factor *= work_.p.v_scale_per_head[work_.kv_head];
      if (work_.p.sinks != nullptr)
        factor =
            __fdividef(factor, 1.0f + ptx::exp2_approx((work_.p.sinks[r.head] - lse) * kLog2E));
    }
    const std::int64_t token = static_cast<std::int64_t>(work_.item->o_row) + r.token;
    const std::int64_t at = token * work_.p.o_token_stride + r.head * work_.p.o_head_stride;
#pragma unroll
    for (int d = 0; d < kDimBlocks; d += kIsFp8<Kv> ? 2 : 1) {
#pragma unroll
      for (int e = 0; e < (kIsFp8<Kv> ? 2 : 1); ++e) {
        const float low = factor * o[d][2 * i + (kIsFp8<Kv> ? e : 0)];
        const float high = factor * (kIsFp8<Kv> ? o[d + 1][2 * i + e] : o[d][2 * i + 1]);
        if (!Policy::kPadded || dim_of(d, e) < work_.p.head_dim_vo)
          store_pair(at + dim_of(d, e), low, high);
      }
    }
    if (work_.lane % 4 == 0 && work_.dim_part<Policy>() == 0 && work_.p.lse != nullptr)
      work_.p.lse[token * work_.p.lse_token_stride + r.head * work_.p.lse_head_stride] = lse;
  }

  __device__ void store_pair(std::int64_t at, float low, float high) const {
    if (work_.p.o_element == Element::f32)
      *reinterpret_cast<float2*>(static_cast<float*>(work_.p.o) + at) = make_float2(low, high);
    else
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(work_.p.o) + at) =
          work_.p.o_element == Element::bf16 ? ptx::pack_pair<__nv_bfloat16>(low, high)
                                             : ptx::pack_pair<__half>(low, high);
  }

  const Work& work_;
  const Sight<Policy>& sight_;
};

}  // namespace attune::kernels::ragged_prefill::sm80
