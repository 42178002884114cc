#include "kernels/mla_decode/sm90/launch.hpp"

#include <string>

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/mla_decode/sm90/kernel.cuh"
#include "kernels/mla_decode/sm90/merge.cuh"

namespace attune::kernels::mla_decode::sm90 {
namespace {

template <class Element>
Instance instance_of(DType dtype) {
  return {.dtype = dtype,
          .decode = ptx::kernel_handle(&mla_decode<Element>),
          .merge = ptx::kernel_handle(&mla_merge<Element>)};
}

constexpr int kSharedBytes = sizeof(Shared<__nv_bfloat16>);
static_assert(sizeof(Shared<__half>) == kSharedBytes);

Status failed(cudaError_t error, const Instance& instance) {
  return {StatusCode::device_error, "mla_decode " + std::string(name(instance.dtype)) + ": " +
                                        cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
                                        ")"};
}

/// Starts while the kernel before it in the stream ends.
cudaError_t start(const void* kernel, int blocks, int threads, int shared_bytes,
                  cudaStream_t stream, void** arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace

const Instance* find(DType dtype) {
  static const Instance kInstances[] = {instance_of<__nv_bfloat16>(DType::bf16),
                                        instance_of<__half>(DType::f16)};
  for (const Instance& instance : kInstances)
    if (instance.dtype == dtype) return &instance;
  return nullptr;
}

Status prepare(const Instance& instance) {
  const cudaError_t error = cudaFuncSetAttribute(
      instance.decode, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return failed(error, instance);
}

Status launch(const Instance& instance, tensor_map::Encoder encoder, Grid grid,
              const Operands& operands, const Params& params, cudaStream_t stream) {
  CUtensorMap q_map{};
  CUtensorMap k_map{};
  if (Status s = tensor_map::encode(encoder, q_map,
                                    {.name = "q",
                                     .dtype = instance.dtype,
                                     .base = operands.q,
                                     .rank = 3,
                                     .dims = {kDimQk, params.num_heads, operands.q_tokens},
                                     .strides = {operands.q_head_stride, operands.q_token_stride},
                                     .box = {64, params.heads_per_block, params.tokens_per_block}});
      !s.ok())
    return s;
  if (Status s = tensor_map::encode(encoder, k_map,
                                    {.name = "the latent cache",
                                     .dtype = instance.dtype,
                                     .base = operands.k,
                                     .rank = 3,
                                     .dims = {kDimQk, kKeys, operands.num_pages},
                                     .strides = {operands.k_token_stride, operands.k_page_stride},
                                     .box = {64, kKeys, 1}});
      !s.ok())
    return s;
  Params copy = params;
  void* decode_arguments[] = {&q_map, &k_map, &copy};
  cudaError_t error =
      start(instance.decode, grid.blocks, kThreads, kSharedBytes, stream, decode_arguments);
  if (error == cudaSuccess) {
    void* merge_arguments[] = {&copy};
    error = start(instance.merge, grid.merge_blocks, kMergeThreads, 0, stream, merge_arguments);
  }
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return failed(error, instance);
}

}  // namespace attune::kernels::mla_decode::sm90
