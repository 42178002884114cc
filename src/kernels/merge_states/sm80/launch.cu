#include "kernels/merge_states/sm80/launch.hpp"

#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/warpgroup.cuh"

namespace attune::kernels::merge_states::sm80 {
namespace {

constexpr int kWarps = 4;
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

/// A warp a (token, head). States are of the kernel before, so they are read past the first-level
/// cache; the lists are of the plan.
__global__ void __launch_bounds__(32 * kWarps)
    merge_states_kernel(const __grid_constant__ Params p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t token = row / p.num_heads;
  const auto head = static_cast<int>(row - token * p.num_heads);
  ptx::dependency_release();
  ptx::dependency_wait();
  if (token >= p.num_tokens) return;
  const int begin = p.first[token];
  const int end = p.first[token + 1];
  const auto state = [&](int n) { return std::int64_t{p.rows[n]} * p.num_heads + head; };

  float top = -INFINITY;
  for (int n = begin + lane; n < end; n += 32) top = fmaxf(top, __ldcg(p.state_lse + state(n)));
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  const float shift = top == -INFINITY ? 0.0f : top;
  float sum = 0.0f;
  for (int n = begin; n < end; ++n)
    sum += ptx::exp2_approx((__ldcg(p.state_lse + state(n)) - shift) * kLog2E);

  float factor = 0.0f;
  float lse = -INFINITY;
  if (sum > 0.0f) {
    lse = top + __log2f(sum) * kLn2;
    factor = __fdividef(p.v_scale, sum);
    if (p.v_scale_per_head != nullptr) factor *= p.v_scale_per_head[head / p.heads_per_kv_head];
    if (p.sinks != nullptr)
      factor = __fdividef(factor, 1.0f + ptx::exp2_approx((p.sinks[head] - lse) * kLog2E));
  }
  for (int d = 4 * lane; d < p.head_dim; d += 128) {
    float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (int n = begin; n < end; ++n) {
      const std::int64_t at = state(n);
      const float weight = ptx::exp2_approx((__ldcg(p.state_lse + at) - shift) * kLog2E) * factor;
      const float4 v = __ldcg(reinterpret_cast<const float4*>(p.state_o + at * p.head_dim + d));
      o.x += weight * v.x;
      o.y += weight * v.y;
      o.z += weight * v.z;
      o.w += weight * v.w;
    }
    store(p, token * p.o_token_stride + head * p.o_head_stride + d, o);
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
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return {StatusCode::device_error, std::string("merge_states: ") + cudaGetErrorString(error) +
                                        " (" + cudaGetErrorName(error) + ")"};
}

}  // namespace attune::kernels::merge_states::sm80
