// Joins the parts of cut strips, in order. A warp takes 16 bytes a lane of each part of a row: 128
// columns, or half a row of fp16; where parts are many or halves, the four warps of a block take
// the same columns and share the parts.
#include "kernels/mla_decode/sm80/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/cuda/start.hpp"
#include "kernels/mla_decode/rows.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::mla_decode::sm80 {
namespace {

constexpr int kMergeThreads = 128;
constexpr int kMergeWarps = kMergeThreads / 32;
constexpr int kAtOnce = 20;  ///< parts a warp has under way: a quarter of a request cut for 66

/// Parts in fp32: a lane's columns are those of 16 bytes.
struct Whole {
  static constexpr int kColumns = 4;  ///< a lane's
  static __device__ __forceinline__ const void* at(const Params& params, std::int64_t row,
                                                   int column) {
    return params.partial_o + row * params.dim_vo + column;
  }
  static __device__ __forceinline__ float factor(const Params&, std::int64_t, int) { return 1.0f; }
  static __device__ __forceinline__ void add(float (&o)[kColumns], float weight,
                                             const uint4& part) {
    const std::uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) o[i] = fmaf(weight, __uint_as_float(words[i]), o[i]);
  }
};

/// … and in HalfParts.
struct Halves {
  static constexpr int kColumns = 8;
  static_assert(32 * kColumns == HalfParts::kColumns);
  static __device__ __forceinline__ const void* at(const Params& params, std::int64_t row,
                                                   int column) {
    return reinterpret_cast<const __half*>(params.partial_o + row * kDimVo) + column;
  }
  static __device__ __forceinline__ float factor(const Params& params, std::int64_t row,
                                                 int column) {
    return params.partial_o[row * kDimVo + HalfParts::kFactorsAt + column / HalfParts::kColumns];
  }
  static __device__ __forceinline__ void add(float (&o)[kColumns], float weight,
                                             const uint4& part) {
    const std::uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(
          __halves2half2(__ushort_as_half(static_cast<unsigned short>(words[i] & 0xffffu)),
                         __ushort_as_half(static_cast<unsigned short>(words[i] >> 16))));
      o[2 * i] = fmaf(weight, pair.x, o[2 * i]);
      o[2 * i + 1] = fmaf(weight, pair.y, o[2 * i + 1]);
    }
  }
};

template <class Form>
inline constexpr int kColumnsOfWarp = 32 * Form::kColumns;
static_assert(kDimVo == kMergeWarps * kColumnsOfWarp<Whole> && kMergeWarps == kMergeSlices);

template <class Form>
struct Joined {
  float o[Form::kColumns] = {};
  float maximum = -INFINITY;
  float sum = 0.0f;  ///< the same in all lanes
};

template <class Form>
struct Shared {
  uint4 parts[kAtOnce][kMergeThreads];
  float o[kMergeWarps][kColumnsOfWarp<Form>];
  float maximum[kMergeWarps];
  float sum[kMergeWarps];
};

/// Parts begin, begin + step … of a row whose first part is row `first` of the places, which lie
/// `stride` rows apart.
template <class Form>
__device__ __forceinline__ Joined<Form> join_parts(Shared<Form>& shared, const Params& params,
                                                   std::int64_t first, std::int64_t stride,
                                                   int begin, int step, int parts, int column) {
  Joined<Form> joined;
  uint4* const mine = &shared.parts[0][threadIdx.x];
  // Through shared memory, a thread's own places: copies that nobody waits for until all are
  // under way, which ptxas does not grant to loads.
  const auto start = [&](int from) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int part = from + i * step;
      ptx::cp_async_16(mine + i * kMergeThreads, Form::at(params, first + part * stride, column),
                       part < parts && column < params.dim_vo);
    }
    ptx::cp_async_commit();
  };
  // A warp without parts waits for nothing below, so it may not leave copies that would land among
  // the next row's.
  if (begin < parts) start(begin);
  // Of the lane's first part both are read at once.
  const bool has_part = begin + lane() * step < parts;
  const std::int64_t my_part = first + (begin + lane() * step) * stride;
  const float my_maximum = has_part ? params.partial_maximum[my_part] : -INFINITY;
  const float my_sum = has_part ? params.partial_sum[my_part] : 0.0f;
  const float my_factor = has_part ? Form::factor(params, my_part, column) : 0.0f;
  joined.maximum = my_maximum;
  for (int part = begin + (32 + lane()) * step; part < parts; part += 32 * step)
    joined.maximum = fmaxf(joined.maximum, params.partial_maximum[first + part * stride]);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    joined.maximum = fmaxf(joined.maximum, __shfl_xor_sync(kAllLanes, joined.maximum, mask));
  for (int from = begin; from < parts; from += kAtOnce * step) {
    const int part = from + lane() * step;
    float weight = 0.0f;
    if (lane() < kAtOnce && part < parts) {
      const bool mine = from == begin;
      const std::int64_t at = first + part * stride;
      weight = ptx::exp2_approx((mine ? my_maximum : params.partial_maximum[at]) -
                                finite(joined.maximum));
      joined.sum += weight * (mine ? my_sum : params.partial_sum[at]);
      weight *= mine ? my_factor : Form::factor(params, at, column);
    }
    ptx::cp_async_wait<0>();
    uint4 values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) values[i] = mine[i * kMergeThreads];
    if (from + kAtOnce * step < parts) start(from + kAtOnce * step);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      Form::add(joined.o, __shfl_sync(kAllLanes, weight, i), values[i]);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    joined.sum += __shfl_xor_sync(kAllLanes, joined.sum, mask);
  return joined;
}

/// What the block's warps have of the same columns; to the first warp.
template <class Form>
__device__ __forceinline__ void join_warps(Shared<Form>& shared, Joined<Form>& joined) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();  // what the row before left has been read
  // A lane's columns lie 32 apart here, so that neighbours meet other banks.
#pragma unroll
  for (int i = 0; i < Form::kColumns; ++i) shared.o[warp][32 * i + lane()] = joined.o[i];
  if (lane() == 0) {
    shared.maximum[warp] = joined.maximum;
    shared.sum[warp] = joined.sum;
  }
  __syncthreads();
  if (warp > 0) return;
  joined = {};
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) joined.maximum = fmaxf(joined.maximum, shared.maximum[w]);
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) {
    const float weight = ptx::exp2_approx(shared.maximum[w] - finite(joined.maximum));
    joined.sum = fmaf(weight, shared.sum[w], joined.sum);
#pragma unroll
    for (int i = 0; i < Form::kColumns; ++i)
      joined.o[i] = fmaf(weight, shared.o[w][32 * i + lane()], joined.o[i]);
  }
}

template <class Element, class Form>
__device__ __forceinline__ void write_row(const Params& params, const Joined<Form>& joined,
                                          std::int64_t token, int head, int column) {
  const bool empty = joined.maximum == -INFINITY;
  const float inverse = inverse_of<true>(params, joined.maximum, joined.sum, head);
  auto* out = static_cast<Element*>(params.o) + token * params.o_token_stride +
              head * params.o_head_stride + column;
#pragma unroll
  for (int i = 0; i < Form::kColumns; i += 4)
    *reinterpret_cast<uint2*>(out + i) =
        make_uint2(ptx::pack_pair<Element>(joined.o[i] * inverse, joined.o[i + 1] * inverse),
                   ptx::pack_pair<Element>(joined.o[i + 2] * inverse, joined.o[i + 3] * inverse));
  if (params.lse != nullptr && column == 0)
    params.lse[token * params.lse_token_stride + head * params.lse_head_stride] =
        empty ? -INFINITY : (joined.maximum + log2f(joined.sum)) * kLn2;
}

template <class Element, class Form>
__global__ void __launch_bounds__(kMergeThreads) mla_merge(const __grid_constant__ Params params) {
  auto& shared = *reinterpret_cast<Shared<Form>*>(ptx::dynamic_shared<128>());
  ptx::dependency_release();
  // The lists are older than the kernel in front.
  const attention::LatentWork work = *params.work;
  constexpr int kColumns = kColumnsOfWarp<Form>;
  const int slices = (params.dim_vo + kColumns - 1) / kColumns;
  const bool share = work.most_parts > kAtOnce || slices != kMergeWarps;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int rows = params.heads_per_block * params.tokens_per_block;
  const int of_merge = rows * params.lanes * (share ? slices : 1);
  const int total = work.num_merges * of_merge;
  bool waited = false;
  for (int i = static_cast<int>(blockIdx.x); i < total; i += static_cast<int>(gridDim.x)) {
    const attention::LatentMerge merge = params.merges[i / of_merge];
    const int in_merge = i % of_merge;
    const int slice = share ? in_merge % slices : warp;
    const int lane_row = share ? in_merge / slices : in_merge;
    const int lane_of_group = lane_row / rows;
    const int row = lane_row - lane_of_group * rows;
    const RowPlace place = place_of(params, merge.first_block + lane_of_group, row, merge.qo_len);
    if (!waited) ptx::dependency_wait();
    waited = true;
    if (!place.exists) continue;
    const std::int64_t first =
        (std::int64_t{merge.first_place} * params.lanes + lane_of_group) * params.block_rows + row;
    const int column = slice * kColumns + Form::kColumns * lane();
    Joined<Form> joined =
        join_parts<Form>(shared, params, first, std::int64_t{params.lanes} * params.block_rows,
                         share ? warp : 0, share ? kMergeWarps : 1, merge.parts, column);
    if (share) {
      join_warps(shared, joined);
      if (warp > 0) continue;
    }
    if (column >= params.dim_vo) continue;
    write_row<Element, Form>(params, joined, merge.q_token + place.token, place.head, column);
  }
  // Whoever comes next must find the kernel in front done, too.
  if (!waited) ptx::dependency_wait();
}

template <class Form>
cudaError_t start_of(DType dtype, int blocks, const Params& params, bool overlap,
                     cudaStream_t stream) {
  Params copy = params;
  void* arguments[] = {&copy};
  return base::cuda::start(
      {.kernel = dtype == DType::f16 ? ptx::kernel_handle(&mla_merge<__half, Form>)
                                     : ptx::kernel_handle(&mla_merge<__nv_bfloat16, Form>),
       .blocks = blocks,
       .threads = kMergeThreads,
       .shared_bytes = static_cast<int>(sizeof(Shared<Form>))},
      arguments, overlap, stream);
}

}  // namespace

cudaError_t start_merge(DType dtype, int blocks, const Params& params, bool halves, bool overlap,
                        cudaStream_t stream) {
  return halves ? start_of<Halves>(dtype, blocks, params, overlap, stream)
                : start_of<Whole>(dtype, blocks, params, overlap, stream);
}

}  // namespace attune::kernels::mla_decode::sm80
