#include "kernels/ragged_prefill/sm90/launch.hpp"

#include <numeric>
#include <string>

#include <cuda.h>
#include <cuda_runtime.h>

#include "base/cuda/status.hpp"

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

/// Kernels without the copy engine load 16 bytes at a time. Strides of dimensions of one are never
/// walked.
Status check_loads(const Instance& instance, const Operands& operands, const Params& params) {
  const auto element = static_cast<std::int64_t>(size_of(instance.kv_dtype));
  const auto fits = [&](const void* base, std::int64_t token, std::int64_t head,
                        std::int64_t page) {
    return reinterpret_cast<std::uintptr_t>(base) % 16 == 0 &&
           (operands.tokens_per_page < 2 || token * element % 16 == 0) &&
           (operands.num_kv_heads < 2 || head * element % 16 == 0) &&
           (operands.num_pages < 2 || page * element % 16 == 0);
  };
  if (fits(params.k, params.k_token_stride, params.k_head_stride, params.k_page_stride) &&
      fits(params.v, params.v_token_stride, params.v_head_stride, params.v_page_stride))
    return {};
  return invalid_argument(std::string(instance.name) +
                          " loads 16 bytes at a time: the addresses of k and v and their token, "
                          "head and page strides must be multiples of 16 bytes");
}

}  // namespace

Result<int> prepare(const Instance& instance) {
  cudaError_t error = cudaFuncSetAttribute(
      instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, instance.shared_bytes);
  if (error != cudaSuccess) return base::cuda::call_status(error, instance.name);
  int device = 0;
  int sms = 0;
  error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return base::cuda::call_status(error, instance.name);
  return sms;
}

int box_rows(const Instance& instance, std::int64_t tokens_per_page, bool ragged) {
  if (instance.loaded_keys == 0) return 0;
  if (ragged) return instance.loaded_keys;
  const int rows = static_cast<int>(std::gcd<std::int64_t>(tokens_per_page, instance.loaded_keys));
  return rows % 8 == 0 ? rows : 0;
}

Status launch(const Instance& instance, tensor_map::Encoder encoder, int blocks,
              const Operands& operands, const Params& params, cudaStream_t stream) {
  CUtensorMap q_map{};
  CUtensorMap k_map{};
  CUtensorMap v_map{};
  CUtensorMap o_map{};
  const std::int64_t pack = std::int64_t{1} << params.pack_shift;
  if (Status s = tensor_map::encode(
          encoder, q_map,
          {.name = "q",
           .dtype = instance.dtype,
           .base = operands.q,
           .rank = 3,
           .dims = {instance.head_dim_qk, operands.num_qo_heads, operands.q_tokens},
           .strides = {operands.q_head_stride, operands.q_token_stride},
           .box = {64, pack, instance.query_tile / pack}});
      !s.ok())
    return s;
  if (!instance.states) {  // those leave by ordinary stores
    if (Status s = tensor_map::encode(
            encoder, o_map,
            {.name = "o",
             .dtype = instance.dtype,
             .base = params.o,
             .rank = 3,
             .dims = {instance.head_dim_vo, operands.num_qo_heads, operands.q_tokens},
             .strides = {params.o_head_stride, params.o_token_stride},
             .box = {64, pack, 64 / pack}});
        !s.ok())
      return s;
  }
  const auto encode_keys = [&](CUtensorMap& map, const void* base, int head_dim,
                               std::int64_t token_stride, std::int64_t head_stride,
                               std::int64_t page_stride, std::string_view what) {
    return tensor_map::encode(
        encoder, map,
        {.name = what,
         .dtype = instance.kv_dtype,
         .base = base,
         .rank = 4,
         .dims = {head_dim, operands.tokens_per_page, operands.num_kv_heads, operands.num_pages},
         .strides = {token_stride, head_stride, page_stride},
         .box = {instance.kv_dtype == instance.dtype ? 64 : head_dim, params.box_rows, 1, 1}});
  };
  if (params.box_rows > 0) {
    if (Status s = encode_keys(k_map, params.k, instance.head_dim_qk, params.k_token_stride,
                               params.k_head_stride, params.k_page_stride, "k");
        !s.ok())
      return s;
    if (Status s = encode_keys(v_map, params.v, instance.head_dim_vo, params.v_token_stride,
                               params.v_head_stride, params.v_page_stride, "v");
        !s.ok())
      return s;
  }

  if (params.box_rows == 0) {
    if (Status s = check_loads(instance, operands, params); !s.ok()) return s;
  }

  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(instance.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(instance.shared_bytes);
  config.stream = stream;
  Params copy = params;
  void* arguments[] = {&q_map, &k_map, &v_map, &o_map, &copy};
  const cudaError_t error = cudaLaunchKernelExC(&config, instance.kernel, arguments);
  return base::cuda::call_status(error, instance.name);
}

}  // namespace attune::kernels::ragged_prefill::sm90
