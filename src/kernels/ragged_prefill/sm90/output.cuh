// A finished tile on its way out: divided by its sums, then to memory from registers or through the
// copy engine.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ragged_prefill/sm90/products.cuh"
#include "kernels/ragged_prefill/sm90/softmax.cuh"

namespace attune::kernels::ragged_prefill::sm90 {

inline constexpr float kLn2 = 0.69314718f;

/// Where row h of this thread belongs.
struct Place {
  int token;  ///< counted from the item's first
  int head;
  __device__ __forceinline__ Place(const Params& params, const PrefillTile& item, int row)
      : token(row >> params.pack_shift), head(item.head + (row & ((1 << params.pack_shift) - 1))) {}
};

/// Of row h over all columns.
template <class C>
__device__ __forceinline__ float row_sum(const Accumulators<C>& o, const RowState& rows, int h) {
  if constexpr (C::kAddsUp) {
    float sum = rows.sum[h];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
  } else {
    return o.sum(h);
  }
}

/// Divides by the sums (with the sink); `lse` gets what is to be written once the output is on its
/// way.
template <class C>
__device__ __forceinline__ void normalise(Accumulators<C>& o, float (&lse)[2], const RowState& rows,
                                          const Params& params, int first_row,
                                          const PrefillTile& item) {
  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool empty = rows.max[h] == -INFINITY;
    const float sum = row_sum<C>(o, rows, h);
    float denominator = sum;
    if (params.sinks != nullptr) {
      const Place place(params, item, first_row + 8 * h);
      if (place.token < item.q_tokens && !empty)
        denominator += ptx::exp2_approx(params.sinks[place.head] * kLog2E - rows.max[h]);
    }
    inverse[h] = empty ? 0.0f : params.v_scale * ptx::reciprocal_approx(denominator);
    lse[h] = empty ? -INFINITY : (rows.max[h] + __log2f(sum)) * kLn2;
  }
  o.rescale(inverse);
}

/// The first row of o and lse.
template <class C>
__device__ __forceinline__ int output_token(const PrefillTile& item) {
  return C::kOutput == Output::states ? item.o_token : item.q_token;
}

template <class C>
__device__ __forceinline__ void write_lse(const float (&lse)[2], const Params& params,
                                          int first_row, const PrefillTile& item) {
  if (params.lse == nullptr) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Place place(params, item, first_row + 8 * h);
    if (place.token < item.q_tokens && threadIdx.x % 4 == 0)
      params.lse[static_cast<std::int64_t>(output_token<C>(item) + place.token) *
                     params.lse_token_stride +
                 place.head * params.lse_head_stride] = lse[h];
  }
}

/// Ordinary stores of the rows that exist. Four neighbouring threads hold a row's 8-column blocks
/// in slices; they trade so that each writes 16 whole bytes.
template <class C>
__device__ __forceinline__ void write_rows(Accumulators<C>& o, const Params& params, int first_row,
                                           const PrefillTile& item) {
  using Element = typename C::Outer;
  const int quarter = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Place place(params, item, first_row + 8 * h);
    auto* out = static_cast<Element*>(params.o) +
                static_cast<std::int64_t>(item.q_token + place.token) * params.o_token_stride +
                place.head * params.o_head_stride + 8 * quarter;
#pragma unroll
    for (int block = 0; block < C::kHeadDimVo / 8; block += 4) {
      std::uint32_t w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        w[j] = ptx::pack_pair<Element>(o.at(block + j, 2 * h), o.at(block + j, 2 * h + 1));
      // A 4 x 4 transpose in two exchanges.
      const bool odd = quarter & 1;
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? w[j] : w[j + 1], 1);
        w[j] = odd ? got : w[j];
        w[j + 1] = odd ? w[j + 1] : got;
      }
      const bool upper = quarter & 2;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const std::uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? w[j] : w[j + 2], 2);
        w[j] = upper ? got : w[j];
        w[j + 2] = upper ? w[j + 2] : got;
      }
      if (place.token < item.q_tokens)
        *reinterpret_cast<uint4*>(out + 8 * block) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}

/// The same in fp32, a pair a store: four threads write a whole sector.
template <class C>
__device__ __forceinline__ void write_states(Accumulators<C>& o, const Params& params,
                                             int first_row, const PrefillTile& item) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Place place(params, item, first_row + 8 * h);
    auto* out =
        static_cast<float*>(params.o) +
        static_cast<std::int64_t>(output_token<C>(item) + place.token) * params.o_token_stride +
        place.head * params.o_head_stride + 2 * static_cast<int>(threadIdx.x % 4);
    if (place.token >= item.q_tokens) continue;
#pragma unroll
    for (int block = 0; block < C::kHeadDimVo / 8; ++block)
      *reinterpret_cast<float2*>(out + 8 * block) =
          make_float2(o.at(block, 2 * h), o.at(block, 2 * h + 1));
  }
}

/// The warpgroup's 64 rows into panels of shared memory, for the copy engine; `rows` is the first
/// panel's first row, panels are `panel_stride` elements apart.
template <class C>
__device__ __forceinline__ void stage_rows(Accumulators<C>& o, typename C::Outer* rows,
                                           int panel_stride) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = static_cast<int>(threadIdx.x % 128 / 32) * 16 + lane % 16;
#pragma unroll
  for (int block = 0; block < C::kHeadDimVo / 8; block += 2) {
    std::uint32_t w[4];
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        w[2 * j + h] =
            ptx::pack_pair<typename C::Outer>(o.at(block + j, 2 * h), o.at(block + j, 2 * h + 1));
    const int chunk = (block % 8 + lane / 16) ^ (row % 8);
    ptx::stmatrix(rows + block / 8 * panel_stride + row * 64 + chunk * 8, w);
  }
  ptx::fence_proxy_async();
}

/// Finished tiles on their way out, of one warpgroup. Its first thread asks the copy engine, and
/// hands the query stage back once the engine has read what was staged in its place.
template <class C>
class Writer {
 public:
  __device__ Writer(SharedOf<C>& shared, const Params& params, const CUtensorMap& map,
                    int warpgroup)
      : shared_(shared), params_(params), map_(map), warpgroup_(warpgroup) {}

  __device__ __forceinline__ void write(Accumulators<C>& o, int first_row, const PrefillTile& item,
                                        int stage) {
    if constexpr (C::kOutput == Output::registers) {
      write_rows<C>(o, params_, first_row, item);
    } else if constexpr (C::kOutput == Output::states) {
      write_states<C>(o, params_, first_row, item);
    } else {
      constexpr int kPanel = C::kQueryTile * 64;
      typename C::Outer* rows;
      if constexpr (C::kOutput == Output::in_queries) {
        rows = reinterpret_cast<typename C::Outer*>(shared_.q[stage]) + warpgroup_ * 64 * 64;
      } else {
        rows = shared_.o + warpgroup_ * 64 * 64;
        if (threadIdx.x % 128 == 0) ptx::bulk_wait_read();
        barrier();
      }
      const int tokens = 64 >> params_.pack_shift;
      const int token = warpgroup_ * tokens;
      const bool full = token + tokens <= item.q_tokens;
      if (full)
        stage_rows<C>(o, rows, kPanel);
      else
        write_rows<C>(o, params_, first_row, item);
      barrier();
      if (full && threadIdx.x % 128 == 0) {
        for (int panel = 0; panel < C::kHeadDimVo / 64; ++panel)
          ptx::tma_store(map_, rows + panel * kPanel, panel * 64, item.head, item.q_token + token);
        ptx::bulk_commit();
      }
      unreleased_ = stage;
    }
  }

  /// Before the stage written from is needed again, and before the kernel ends.
  __device__ __forceinline__ void settle() {
    if constexpr (C::kStaged) {
      if (unreleased_ >= 0 && threadIdx.x % 128 == 0) {
        ptx::bulk_wait_read();
        if constexpr (C::kOutput == Output::in_queries)
          ptx::mbarrier_arrive(shared_.q_empty[unreleased_]);
      }
      unreleased_ = -1;
    }
  }

 private:
  __device__ __forceinline__ void barrier() {
    ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
  }

  SharedOf<C>& shared_;
  const Params& params_;
  const CUtensorMap& map_;
  int warpgroup_;
  int unreleased_ = -1;
};

}  // namespace attune::kernels::ragged_prefill::sm90
