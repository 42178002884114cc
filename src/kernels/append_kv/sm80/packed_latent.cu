// New tokens into the fp8 latent cache, a warp a token (attention/packed_latent.hpp).
#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "attention/packed_latent.hpp"
#include "base/cuda/status.hpp"
#include "kernels/append_kv/sm80/launch.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::append_kv::sm80 {
namespace {

namespace packed = attention::packed_latent;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kOfLane = packed::kScaleBlock / 32;  ///< latents of a block

/// The exponent of the least power of two with which `largest` does not exceed 448 = 1.75 * 2^8.
__device__ int scale_exponent(float largest) {
  const unsigned bits = __float_as_uint(largest);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const bool above = (bits & 0x7fffffu) > 0x600000u;
  return max(exponent - 8 + (above ? 1 : 0), packed::kLeastScaleExponent);
}

template <class From>
__global__ void append_packed_kernel(const __grid_constant__ Params p) {
  const std::int64_t token =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (token >= p.num_tokens) return;
  const std::int64_t slot = p.slot_mapping[token];
  if (slot < 0 || slot >= p.num_slots) return;
  const std::int64_t page = slot / p.page_size;
  const From* const in = static_cast<const From*>(p.k.in) + token * p.k.in_token_stride;
  std::uint8_t* const out = static_cast<std::uint8_t*>(p.k.cache) + page * p.k.page_stride +
                            (slot - page * p.page_size) * p.k.token_stride;
  const auto value = [&](int d) { return __fdiv_rn(static_cast<float>(in[d]), p.k.scale); };
#pragma unroll
  for (int block = 0; block < packed::kScales; ++block) {
    const int first = block * packed::kScaleBlock + lane * kOfLane;
    float x[kOfLane];
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      x[i] = value(first + i);
      largest = fmaxf(largest, fabsf(x[i]));
    }
#pragma unroll
    for (int far = 16; far > 0; far /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, far));
    const int exponent = scale_exponent(largest);
    std::uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const __nv_fp8_e4m3 narrow(ldexpf(x[i], -exponent));
      four |= static_cast<std::uint32_t>(narrow.__x) << 8 * i;
    }
    *reinterpret_cast<std::uint32_t*>(out + first) = four;
    if (lane == 0)
      reinterpret_cast<float*>(out + packed::kScalesAt)[block] = ldexpf(1.0f, exponent);
  }
  __nv_bfloat162 rope;
  rope.x = __float2bfloat16_rn(value(packed::kLatents + 2 * lane));
  rope.y = __float2bfloat16_rn(value(packed::kLatents + 2 * lane + 1));
  reinterpret_cast<__nv_bfloat162*>(out + packed::kRopeAt)[lane] = rope;
}

using Kernel = void (*)(Params);

Kernel kernel_of(DType in) {
  switch (in) {
    case DType::f32: return append_packed_kernel<float>;
    case DType::bf16: return append_packed_kernel<__nv_bfloat16>;
    case DType::f16: return append_packed_kernel<__half>;
    default: return nullptr;
  }
}

}  // namespace

Status launch_packed(const Params& params, cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  const Kernel kernel = kernel_of(params.in_dtype);
  if (kernel == nullptr)
    return {StatusCode::unsupported, "append_kv packs fp32, bf16 or fp16 latents, not " +
                                         std::string(name(params.in_dtype))};
  constexpr int kThreads = 128;
  const std::int64_t threads = params.num_tokens * 32;
  ptx::launch(kernel, static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0,
              stream, params);
  return base::cuda::launch_status("append_kv packed");
}

}  // namespace attune::kernels::append_kv::sm80
