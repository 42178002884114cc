#include "kernels/merge_states/sm80/launch.hpp"

#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::merge_states::sm80 {
namespace {

constexpr int kWarps = 4;
constexpr int kVectors = 2;  ///< of four outputs a lane: head dims up to 256
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

__device__ void store(const Params& p, std::int64_t at, float4 v) {
  if (p.o_dtype == DType::f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.o) + at) = v;
    return;
  }
  const bool bf16 = p.o_dtype == DType::bf16;
  *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(p.o) + at) =
      bf16 ? make_uint2(ptx::pack_pair<__nv_bfloat16>(v.x, v.y),
                        ptx::pack_pair<__nv_bfloat16>(v.z, v.w))
           : make_uint2(ptx::pack_pair<__half>(v.x, v.y), ptx::pack_pair<__half>(v.z, v.w));
}

/// A warp a (token, head). Lane n holds the weight of the n-th of up to 32 states, so that their
/// loads go out together. States are of the kernel before, so they are read past the first-level
/// cache; the lists are of the plan and need no waiting.
__global__ void __launch_bounds__(32 * kWarps)
    merge_states_kernel(const __grid_constant__ Params p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t token = row / p.num_heads;
  const auto head = static_cast<int>(row - token * p.num_heads);
  ptx::dependency_release();
  const bool exists = token < p.num_tokens;
  const int begin = exists ? p.first[token] : 0;
  const int end = exists ? p.first[token + 1] : 0;
  int mine = begin + lane < end ? p.rows[begin + lane] : 0;
  ptx::dependency_wait();
  if (row == 0 && lane == 0 && p.counter != nullptr) *p.counter = 0;
  if (!exists) return;

  float4 o[kVectors] = {};
  float top = -INFINITY;
  float sum = 0.0f;
  for (int done = begin; done < end; done += 32) {
    const int count = min(32, end - done);
    if (done > begin) mine = lane < count ? p.rows[done + lane] : 0;
    const std::int64_t state = std::int64_t{mine} * p.num_heads + head;
    const float lse = lane < count ? __ldcg(p.state_lse + state) : -INFINITY;
    float after = lse;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      after = fmaxf(after, __shfl_xor_sync(0xffffffffu, after, step));
    after = fmaxf(after, top);
    const float shift = after == -INFINITY ? 0.0f : after;
    const float factor = ptx::exp2_approx((top - shift) * kLog2E);
    const float weight = ptx::exp2_approx((lse - shift) * kLog2E);
    top = after;
    sum = sum * factor + weight;  // of this lane's states
#pragma unroll
    for (float4& v : o) v = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
#pragma unroll 8
    for (int n = 0; n < count; ++n) {
      const float w = __shfl_sync(0xffffffffu, weight, n);
      const std::int64_t at =
          (std::int64_t{__shfl_sync(0xffffffffu, mine, n)} * p.num_heads + head) * p.head_dim;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int d = 128 * i + 4 * lane;
        if (d >= p.head_dim) continue;
        const float4 v = __ldcg(reinterpret_cast<const float4*>(p.state_o + at + d));
        o[i].x += w * v.x;
        o[i].y += w * v.y;
        o[i].z += w * v.z;
        o[i].w += w * v.w;
      }
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);

  float factor = 0.0f;
  float lse = -INFINITY;
  if (sum > 0.0f) {
    lse = top + __log2f(sum) * kLn2;
    factor = __fdividef(p.v_scale, sum);
    if (p.v_scale_per_head != nullptr) factor *= p.v_scale_per_head[head / p.heads_per_kv_head];
    if (p.sinks != nullptr)
      factor = __fdividef(factor, 1.0f + ptx::exp2_approx((p.sinks[head] - lse) * kLog2E));
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int d = 128 * i + 4 * lane;
    if (d >= p.head_dim) continue;
    const float4 v = o[i];
    store(p, token * p.o_token_stride + head * p.o_head_stride + d,
          make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor));
  }
  if (lane == 0 && p.lse != nullptr)
    p.lse[token * p.lse_token_stride + head * p.lse_head_stride] = lse;
}

}  // namespace

Status launch(const Params& params, bool overlap, cudaStream_t stream) {
  if (params.num_tokens == 0) return {};
  const std::int64_t rows = params.num_tokens * params.num_heads;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>((rows + kWarps - 1) / kWarps);
  config.blockDim = 32 * kWarps;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  void* arguments[] = {const_cast<Params*>(&params)};
  const cudaError_t error =
      cudaLaunchKernelExC(&config, ptx::kernel_handle(&merge_states_kernel), arguments);
  return base::cuda::call_status(error, "merge_states");
}

}  // namespace attune::kernels::merge_states::sm80
