#include "kernels/ragged_prefill/sm80/launch.hpp"

#include <string>

#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "kernels/ragged_prefill/sm80/instance.cuh"

namespace attune::kernels::ragged_prefill::sm80 {
namespace {

Status failed(cudaError_t error, const Instance& i) {
  return base::cuda::call_status(error, "ragged_prefill " + std::string(name(i.kv_dtype)) +
                                            " head dims " + std::to_string(i.head_dim_qk) + "/" +
                                            std::to_string(i.head_dim_vo));
}

}  // namespace

const Instance* find(DType kv_dtype, int head_dim_qk, int head_dim_vo, int shared_bytes,
                     bool blocks) {
  std::size_t count = 0;
  const Instance* rows = nullptr;
  if (kv_dtype == DType::bf16) rows = instances_bf16(count);
  if (kv_dtype == DType::f16) rows = instances_f16(count);
  if (kv_dtype == DType::fp8_e4m3) rows = instances_e4m3(count);
  if (kv_dtype == DType::fp8_e5m2) rows = instances_e5m2(count);
  for (std::size_t n = 0; n < count; ++n)
    if (!rows[n].padded && rows[n].blocks == blocks && rows[n].head_dim_qk == head_dim_qk &&
        rows[n].head_dim_vo == head_dim_vo && rows[n].shared_bytes <= shared_bytes)
      return &rows[n];
  // Copies go sixteen bytes at a time.
  const auto bytes = static_cast<int>(size_of(kv_dtype));
  if (head_dim_qk * bytes % 16 != 0 || head_dim_vo * bytes % 16 != 0) return nullptr;
  for (std::size_t n = 0; n < count; ++n)
    if (rows[n].padded && rows[n].blocks == blocks && rows[n].head_dim_qk >= head_dim_qk &&
        rows[n].head_dim_vo >= head_dim_vo && rows[n].shared_bytes <= shared_bytes)
      return &rows[n];
  return nullptr;
}

Result<int> prepare(const Instance& instance) {
  cudaError_t error = cudaFuncSetAttribute(
      instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, instance.shared_bytes);
  int ctas = 0;
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &ctas, instance.kernel, instance.threads, static_cast<std::size_t>(instance.shared_bytes));
  if (error != cudaSuccess) return failed(error, instance);
  return ctas;
}

Status launch(const Instance& instance, const Params& params, int grid, cudaStream_t stream) {
  void* arguments[] = {const_cast<Params*>(&params)};
  const cudaError_t error =
      cudaLaunchKernel(instance.kernel, dim3(static_cast<unsigned>(grid)),
                       dim3(static_cast<unsigned>(instance.threads)), arguments,
                       static_cast<std::size_t>(instance.shared_bytes), stream);
  return error == cudaSuccess ? Status{} : failed(error, instance);
}

}  // namespace attune::kernels::ragged_prefill::sm80
