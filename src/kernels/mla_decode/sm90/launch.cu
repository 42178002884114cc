#include "kernels/mla_decode/sm90/launch.hpp"

#include <string>

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/mla_decode/sm80/launch.hpp"
#include "kernels/mla_decode/sm90/kernel.cuh"

namespace attune::kernels::mla_decode::sm90 {
namespace {

constexpr int kSharedBytes = sizeof(Shared<__nv_bfloat16>);
static_assert(sizeof(Shared<__half>) == kSharedBytes);

Status failed(cudaError_t error, const Instance& instance) {
  return {StatusCode::device_error, "mla_decode " + std::string(name(instance.dtype)) + ": " +
                                        cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
                                        ")"};
}

template <class Element>
Instance make(DType dtype, int page_size) {
  const bool by_pages = page_size == kKeys;
  return {.dtype = dtype,
          .by_pages = by_pages,
          .kernel = by_pages ? ptx::kernel_handle(&mla_decode<Element, PageKeys>)
                             : ptx::kernel_handle(&mla_decode<Element, TokenKeys>)};
}

}  // namespace

Instance instance_of(DType dtype, int page_size) {
  return dtype == DType::f16 ? make<__half>(dtype, page_size)
                             : make<__nv_bfloat16>(dtype, page_size);
}

Status prepare(const Instance& instance) {
  const cudaError_t error = cudaFuncSetAttribute(
      instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return failed(error, instance);
}

Status launch(const Instance& instance, tensor_map::Encoder encoder, Grid grid,
              const Params& params, cudaStream_t stream) {
  CUtensorMap q_map{};
  CUtensorMap k_map{};
  if (Status s = tensor_map::encode(encoder, q_map,
                                    {.name = "q",
                                     .dtype = instance.dtype,
                                     .base = params.q,
                                     .rank = 3,
                                     .dims = {kDimQk, params.num_heads, params.q_tokens},
                                     .strides = {params.q_head_stride, params.q_token_stride},
                                     .box = {64, params.heads_per_block, params.tokens_per_block}});
      !s.ok())
    return s;
  if (instance.by_pages) {
    const Status s = tensor_map::encode(encoder, k_map,
                                        {.name = "the latent cache",
                                         .dtype = instance.dtype,
                                         .base = params.k,
                                         .rank = 3,
                                         .dims = {kDimQk, kKeys, params.num_pages},
                                         .strides = {params.k_token_stride, params.k_page_stride},
                                         .box = {64, kKeys, 1}});
    if (!s.ok()) return s;
  }
  Params copy = params;
  void* arguments[] = {&q_map, &k_map, &copy};
  cudaError_t error = sm80::start({.kernel = instance.kernel,
                                   .blocks = grid.blocks,
                                   .threads = kThreads,
                                   .shared_bytes = kSharedBytes},
                                  arguments, true, stream);
  if (error == cudaSuccess)
    error = sm80::start_merge(instance.dtype, grid.merge_blocks, params, true, stream);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return failed(error, instance);
}

}  // namespace attune::kernels::mla_decode::sm90
