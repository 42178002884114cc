#include "kernels/paged_decode/sm80/launch.hpp"

#include <string>

#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "kernels/paged_decode/sm80/instance.cuh"

namespace attune::kernels::paged_decode::sm80 {
namespace {

std::string name_of(const Instance& i) {
  return "paged_decode " + std::string(name(i.kv_dtype)) + " head dims " +
         std::to_string(i.head_dim_qk) + "/" + std::to_string(i.head_dim_vo);
}

Status failed(cudaError_t error, const Instance& instance) {
  return base::cuda::call_status(error, name_of(instance));
}

std::span<const Instance> instances_of(DType kv_dtype) {
  std::size_t count = 0;
  const Instance* rows = nullptr;
  if (kv_dtype == DType::bf16) rows = instances_bf16(count);
  if (kv_dtype == DType::f16) rows = instances_f16(count);
  if (kv_dtype == DType::fp8_e4m3) rows = instances_e4m3(count);
  if (kv_dtype == DType::fp8_e5m2) rows = instances_e5m2(count);
  return {rows, count};
}

/// Copies go sixteen bytes at a time.
bool pads(DType kv_dtype, int head_dim_qk, int head_dim_vo) {
  const auto bytes = static_cast<int>(size_of(kv_dtype));
  return head_dim_qk * bytes % 16 == 0 && head_dim_vo * bytes % 16 == 0;
}

}  // namespace

const Instance* find(DType kv_dtype, int head_dim_qk, int head_dim_vo, int gqa_group_size,
                     int shared_per_sm, bool lists) {
  const Instance* best = nullptr;
  for (const Instance& i : instances_of(kv_dtype)) {
    if (lists && i.listed == nullptr) continue;
    if (i.padded || i.head_dim_qk != head_dim_qk || i.head_dim_vo != head_dim_vo) continue;
    if (i.stages(shared_per_sm) < 2) continue;
    const bool enough = best != nullptr && best->rows >= gqa_group_size;
    if (best == nullptr ||
        (enough ? i.rows < best->rows && i.rows >= gqa_group_size : i.rows > best->rows))
      best = &i;
  }
  if (best != nullptr || !pads(kv_dtype, head_dim_qk, head_dim_vo)) return best;
  for (const Instance& i : instances_of(kv_dtype)) {
    if (lists && i.listed == nullptr) continue;
    const bool holds = i.head_dim_qk >= head_dim_qk && i.head_dim_vo >= head_dim_vo;
    if (i.padded && holds && i.stages(shared_per_sm) >= 2 &&
        (best == nullptr || i.head_dim_qk < best->head_dim_qk))
      best = &i;
  }
  return best;
}

Result<Block> prepare(const Instance& instance, int shared_per_sm) {
  const Block block{.threads = 32 * instance.warps(shared_per_sm),
                    .shared_bytes = instance.shared_bytes(shared_per_sm)};
  for (const void* kernel : {instance.kernel, instance.beside, instance.listed}) {
    if (kernel == nullptr) continue;
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, block.shared_bytes);
    if (error != cudaSuccess) return failed(error, instance);
  }
  return block;
}

Status launch(const Instance& instance, const Params& params, int grid, Block block, Order order,
              cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(grid);
  config.blockDim = static_cast<unsigned>(block.threads);
  config.dynamicSmemBytes = static_cast<std::size_t>(block.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (order != Order::after) {
    cudaLaunchAttribute& overlaps = attributes[config.numAttrs++];
    overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlaps.val.programmaticStreamSerializationAllowed = 1;
  }
  if (params.mail_o != nullptr) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  }
  void* arguments[] = {const_cast<Params*>(&params)};
  const void* kernel = params.lengths != nullptr ? instance.listed
                       : order == Order::beside  ? instance.beside
                                                 : instance.kernel;
  const cudaError_t error = cudaLaunchKernelExC(&config, kernel, arguments);
  if (error == cudaSuccess) return {};
  return failed(error, instance);
}

}  // namespace attune::kernels::paged_decode::sm80
