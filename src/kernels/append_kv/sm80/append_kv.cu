#include "kernels/append_kv/sm80/launch.hpp"

#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::append_kv::sm80 {
namespace {

template <class T>
__device__ float to_float(T x) {
  return static_cast<float>(x);
}

template <class T>
__device__ T round_to(float x) {
  return static_cast<T>(x);  // nearest even; fp8 saturates
}

template <class From, class To>
__device__ void copy_row(const Side& side, std::int64_t token, std::int64_t place, int head) {
  const From* in =
      static_cast<const From*>(side.in) + token * side.in_token_stride + head * side.in_head_stride;
  To* out = static_cast<To*>(side.cache) + place + head * side.head_stride;
  const float scale = side.scale_per_head != nullptr ? side.scale_per_head[head] : side.scale;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < side.head_dim; i += 32) {
    if constexpr (sizeof(From) == sizeof(To)) {
      if (scale == 1.0f) {
        out[i] = static_cast<To>(in[i]);
        continue;
      }
    }
    // Division, not multiplication by 1 / scale: the stored number is the nearest one.
    out[i] = round_to<To>(__fdiv_rn(to_float(in[i]), scale));
  }
}

/// A warp a (token, head).
template <class From, class To>
__global__ void append_kv_kernel(const __grid_constant__ Params p) {
  const std::int64_t warp = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const std::int64_t token = warp / p.num_heads;
  if (token >= p.num_tokens) return;
  const auto head = static_cast<int>(warp - token * p.num_heads);
  std::int64_t slot = p.slot_mapping[token];
  if (slot < 0 || (slot + 1) % p.tokens_per_row != 0) return;
  slot /= p.tokens_per_row;
  if (slot >= p.num_slots) return;
  const std::int64_t page = slot / p.page_size;
  const std::int64_t in_page = slot - page * p.page_size;
  copy_row<From, To>(p.k, token, page * p.k.page_stride + in_page * p.k.token_stride, head);
  copy_row<From, To>(p.v, token, page * p.v.page_stride + in_page * p.v.token_stride, head);
}

using Kernel = void (*)(Params);

template <class From>
Kernel kernel_to(DType cache) {
  switch (cache) {
    case DType::f32: return append_kv_kernel<From, float>;
    case DType::bf16: return append_kv_kernel<From, __nv_bfloat16>;
    case DType::f16: return append_kv_kernel<From, __half>;
    case DType::fp8_e4m3: return append_kv_kernel<From, __nv_fp8_e4m3>;
    case DType::fp8_e5m2: return append_kv_kernel<From, __nv_fp8_e5m2>;
    default: return nullptr;
  }
}

Kernel kernel_of(DType in, DType cache) {
  switch (in) {
    case DType::f32: return kernel_to<float>(cache);
    case DType::bf16: return kernel_to<__nv_bfloat16>(cache);
    case DType::f16: return kernel_to<__half>(cache);
    default: return nullptr;
  }
}

}  // namespace

Status launch(const Params& params, cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  const Kernel kernel = kernel_of(params.in_dtype, params.cache_dtype);
  if (kernel == nullptr) {
    return {StatusCode::unsupported,
            "append_kv writes fp32, bf16 or fp16 rows to caches of these or "
            "fp8, not " +
                std::string(name(params.in_dtype)) + " to " +
                std::string(name(params.cache_dtype))};
  }
  constexpr int kThreads = 256;
  const std::int64_t threads = params.num_tokens * params.num_heads * 32;
  ptx::launch(kernel, static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0,
              stream, params);
  return base::cuda::launch_status("append_kv");
}

}  // namespace attune::kernels::append_kv::sm80
