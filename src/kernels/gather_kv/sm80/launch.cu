#include "kernels/gather_kv/sm80/launch.hpp"

#include <string>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"

namespace attune::kernels::gather_kv::sm80 {
namespace {

constexpr int kChunk = 8;  ///< numbers a thread moves at a time: 16 bytes of a row
constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 8;
constexpr int kTogether = 4;  ///< chunks of a thread that are under way at once

/// What the kernel divides by.
struct Divisors {
  base::FastDivisor row;  ///< chunks of K and V
  base::FastDivisor k;    ///< chunks of a head
  base::FastDivisor v;
  base::FastDivisor page;
};

/// A chunk as it is stored.
template <class In>
using Stored = std::conditional_t<sizeof(In) == 1, uint2, uint4>;

/// Two fp8 numbers as two of Out.
template <class In, class Out>
__device__ __forceinline__ std::uint32_t widen_pair(std::uint32_t two) {
  const std::uint32_t pair = ptx::widen_fp8<In>(two);
  if constexpr (std::is_same_v<Out, __half>) {
    return pair;
  } else {
    const auto value = [&](int i) {
      return __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16 * i)));
    };
    return ptx::pack_pair<__nv_bfloat16>(value(0), value(1));
  }
}

template <class In, class Out>
__device__ __forceinline__ uint4 widen(uint2 x) {
  return make_uint4(widen_pair<In, Out>(x.x & 0xffffu), widen_pair<In, Out>(x.x >> 16),
                    widen_pair<In, Out>(x.y & 0xffffu), widen_pair<In, Out>(x.y >> 16));
}
template <class In, class Out>
__device__ __forceinline__ uint4 widen(uint4 x) {
  return x;
}

/// A thread a chunk; neighbouring threads have neighbouring chunks of a row, of all heads.
template <class In, class Out>
__global__ void __launch_bounds__(kThreads)
    gather_kv_kernel(const __grid_constant__ Params p, const __grid_constant__ Divisors by) {
  using Word = Stored<In>;
  const std::uint32_t of_k = static_cast<std::uint32_t>(p.num_heads) * by.k.divisor;
  const std::uint32_t of_v = static_cast<std::uint32_t>(p.num_heads) * by.v.divisor;
  const std::uint32_t end = *p.num_rows * by.row.divisor;
  const std::uint32_t step = gridDim.x * kThreads;
  for (std::uint32_t first = blockIdx.x * kThreads + threadIdx.x; first < end;
       first += kTogether * step) {
    Word word[kTogether];
    uint4* out[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const std::uint32_t at = first + static_cast<std::uint32_t>(i) * step;
      out[i] = nullptr;
      if (at >= end) continue;
      const std::uint32_t row = base::divide(at, by.row);
      const std::uint32_t of_row = at - row * by.row.divisor;
      const bool is_k = of_row < of_k;
      const Side& side = is_k ? p.k : p.v;
      const base::FastDivisor& by_head = is_k ? by.k : by.v;
      const std::uint32_t chunk = is_k ? of_row : of_row - of_k;
      const std::uint32_t head = base::divide(chunk, by_head);
      const std::uint32_t entry = base::divide(row, by.page);
      const std::uint32_t slot = row - entry * by.page.divisor;
      const std::int64_t page = p.kv_indices == nullptr ? static_cast<std::int64_t>(entry)
                                                        : std::int64_t{p.kv_indices[entry]};
      const auto* in = static_cast<const In*>(side.in) + page * side.page_stride +
                       slot * side.token_stride + head * side.head_stride +
                       (chunk - head * by_head.divisor) * kChunk;
      word[i] = *reinterpret_cast<const Word*>(in);
      out[i] = static_cast<uint4*>(side.out) +
               (static_cast<std::int64_t>(row) * (is_k ? of_k : of_v) + chunk);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (out[i] != nullptr) *out[i] = widen<In, Out>(word[i]);
  }
}

using Kernel = void (*)(Params, Divisors);

Kernel kernel_of(DType in, DType out) {
  if (in == out && size_of(in) == 2) return gather_kv_kernel<__half, __half>;  // any 16 bits
  const auto widening = [&](auto kv) -> Kernel {
    using Kv = decltype(kv);
    if (out == DType::bf16) return gather_kv_kernel<Kv, __nv_bfloat16>;
    if (out == DType::f16) return gather_kv_kernel<Kv, __half>;
    return nullptr;
  };
  if (in == DType::fp8_e4m3) return widening(__nv_fp8_e4m3());
  if (in == DType::fp8_e5m2) return widening(__nv_fp8_e5m2());
  return nullptr;
}

/// Strides of dimensions of one are never walked.
bool aligned(const Params& p, const Side& side) {
  const auto bytes = static_cast<std::int64_t>(size_of(p.in_dtype));
  return reinterpret_cast<std::uintptr_t>(side.in) % 16 == 0 &&
         (p.num_pages < 2 || side.page_stride * bytes % 16 == 0) &&
         (p.page_size < 2 || side.token_stride * bytes % 16 == 0) &&
         (p.num_heads < 2 || side.head_stride * bytes % 16 == 0);
}

}  // namespace

int chunks_of_row(const Params& params) {
  return params.num_heads * (params.k.head_dim + params.v.head_dim) / kChunk;
}

Status launch(const Params& params, int num_sms, cudaStream_t stream) {
  const Kernel kernel = kernel_of(params.in_dtype, params.out_dtype);
  if (kernel == nullptr)
    return unsupported("gather_kv copies bf16 and fp16 as they are and widens fp8 to them, not " +
                       std::string(name(params.in_dtype)) + " to " +
                       std::string(name(params.out_dtype)));
  if (!aligned(params, params.k) || !aligned(params, params.v))
    return invalid_argument(
        "gather_kv loads 16 bytes at a time: the addresses of k and v and their token, head and "
        "page strides must be multiples of 16 bytes");
  const Divisors by{.row = base::FastDivisor(static_cast<std::uint32_t>(chunks_of_row(params))),
                    .k = base::FastDivisor(static_cast<std::uint32_t>(params.k.head_dim / kChunk)),
                    .v = base::FastDivisor(static_cast<std::uint32_t>(params.v.head_dim / kChunk)),
                    .page = base::FastDivisor(static_cast<std::uint32_t>(params.page_size))};
  ptx::launch(kernel, static_cast<unsigned>(num_sms * kBlocksPerSm), kThreads, 0, stream, params,
              by);
  return base::cuda::launch_status("gather_kv");
}

}  // namespace attune::kernels::gather_kv::sm80
