#include "kernels/mla_decode/sm80/launch.hpp"

#include <string>

#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/mla_decode/sm80/kernel.cuh"

namespace attune::kernels::mla_decode::sm80 {
namespace {

template <class Element, int Rows, class W>
Instance make(DType dtype) {
  return {.dtype = dtype,
          .rows = Rows,
          .shared_bytes = sizeof(Shared<Element, Rows, W>),
          .kernel = ptx::kernel_handle(&mla_gather<Element, Rows, W>)};
}

template <class W>
Instance of_width(DType dtype, int num_heads, int shared_bytes_per_block) {
  const Instance many = dtype == DType::f16 ? make<__half, kManyRows, W>(dtype)
                                            : make<__nv_bfloat16, kManyRows, W>(dtype);
  if (num_heads > kFewRows && many.shared_bytes <= shared_bytes_per_block) return many;
  return dtype == DType::f16 ? make<__half, kFewRows, W>(dtype)
                             : make<__nv_bfloat16, kFewRows, W>(dtype);
}

Status failed(cudaError_t error, const Instance& instance) {
  return base::cuda::call_status(error, "mla_gather " + std::string(name(instance.dtype)));
}

}  // namespace

Instance instance_of(DType dtype, Dims dims, int num_heads, int shared_bytes_per_block) {
  if (dims.qk == kDimQk && dims.vo == kDimVo)
    return of_width<Exact>(dtype, num_heads, shared_bytes_per_block);
  if (dims.qk <= kNarrowDim) return of_width<Narrow>(dtype, num_heads, shared_bytes_per_block);
  return of_width<Wide>(dtype, num_heads, shared_bytes_per_block);
}

Result<int> prepare(const Instance& instance) {
  int blocks = 0;
  cudaError_t error = cudaFuncSetAttribute(
      instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, instance.shared_bytes);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, instance.kernel, kThreads, static_cast<std::size_t>(instance.shared_bytes));
  if (error == cudaSuccess) return blocks < 1 ? 1 : blocks;
  return failed(error, instance);
}

Status launch(const Instance& instance, Grid grid, const Params& params, bool overlap,
              cudaStream_t stream) {
  Params copy = params;
  void* arguments[] = {&copy};
  cudaError_t error = base::cuda::start({.kernel = instance.kernel,
                                         .blocks = grid.blocks,
                                         .threads = kThreads,
                                         .shared_bytes = instance.shared_bytes},
                                        arguments, overlap, stream);
  if (error == cudaSuccess)
    error = start_merge(instance.dtype, grid.merge_blocks, params, false, overlap, stream);
  if (error == cudaSuccess) return {};
  return failed(error, instance);
}

}  // namespace attune::kernels::mla_decode::sm80
