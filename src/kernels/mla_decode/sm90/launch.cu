#include "kernels/mla_decode/sm90/launch.hpp"

#include <string>

#include <cuda.h>
#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/mla_decode/sm80/launch.hpp"
#include "kernels/mla_decode/sm90/few_launch.hpp"
#include "kernels/mla_decode/sm90/kernel.cuh"
#include "kernels/tensor_map/lines.hpp"

namespace attune::kernels::mla_decode::sm90 {
namespace {

Status failed(cudaError_t error, const Instance& instance) {
  return base::cuda::call_status(error, "mla_decode " + std::string(name(instance.dtype)));
}

template <class Element, template <class> class Keys>
Instance make(DType dtype, KeySource source) {
  return {.dtype = dtype,
          .source = source,
          .threads = Keys<Element>::Roles::kThreads,
          .shared_bytes = sizeof(Shared<Element>),
          .kernel = ptx::kernel_handle(&mla_decode<Element, Keys>)};
}

/// What strides count is so many to an element of a map: bytes come in pairs.
std::int64_t unit_of_queries(KeySource source) { return source == KeySource::e4m3 ? 2 : 1; }
std::int64_t unit_of_keys(KeySource source) {
  return source == KeySource::packed || source == KeySource::e4m3 ? 2 : 1;
}

tensor_map::Tensor query_tensor(const Instance& instance, const Params& params) {
  const std::int64_t unit = unit_of_queries(instance.source);
  return {.name = "q",
          .dtype = instance.dtype,
          .base = params.q,
          .rank = 3,
          .dims = {params.dim_qk / unit, params.num_heads, params.q_tokens},
          .strides = {params.q_head_stride / unit, params.q_token_stride / unit},
          .box = {64, params.heads_per_block, params.tokens_per_block}};
}

/// The cache's rows; of packed ones all bytes.
tensor_map::Tensor key_tensor(const Instance& instance, const Params& params) {
  const std::int64_t unit = unit_of_keys(instance.source);
  const int columns = instance.source == KeySource::packed ? packed::kTokenBytes : kDimQk;
  return {.name = "the latent cache",
          .dtype = instance.dtype,
          .base = params.k,
          .rank = 3,
          .dims = {columns / unit, kKeys, params.num_pages},
          .strides = {params.k_token_stride / unit, params.k_page_stride / unit},
          .box = {64, kKeys, 1}};
}

bool maps_keys(KeySource source) {
  return source == KeySource::pages || source == KeySource::packed || source == KeySource::e4m3;
}

}  // namespace

Instance instance_of(DType dtype, int page_size, int rows) {
  if (rows < kRows)
    return few::instance_of(page_size == kKeys ? KeySource::pages : KeySource::tokens, rows);
  const bool f16 = dtype == DType::f16;
  if (page_size != kKeys)
    return f16 ? make<__half, TokenKeys>(dtype, KeySource::tokens)
               : make<__nv_bfloat16, TokenKeys>(dtype, KeySource::tokens);
  return f16 ? make<__half, PageKeys>(dtype, KeySource::pages)
             : make<__nv_bfloat16, PageKeys>(dtype, KeySource::pages);
}

Instance listed_instance(DType dtype, int rows) {
  if (rows < kRows) return few::instance_of(KeySource::listed, rows);
  return dtype == DType::f16 ? make<__half, ListedKeys>(dtype, KeySource::listed)
                             : make<__nv_bfloat16, ListedKeys>(dtype, KeySource::listed);
}

Instance packed_instance(KeySource source, int rows) {
  if (rows < kRows) return few::packed_instance(source, rows);
  return source == KeySource::listed_packed
             ? make<__nv_bfloat16, ListedPackedKeys>(DType::bf16, source)
             : make<__nv_bfloat16, PackedKeys>(DType::bf16, source);
}

Status prepare(const Instance& instance) {
  const cudaError_t error = cudaFuncSetAttribute(
      instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, instance.shared_bytes);
  if (error == cudaSuccess) return {};
  return failed(error, instance);
}

Status launch(const Instance& instance, tensor_map::Encoder encoder, Grid grid,
              const Params& params, cudaStream_t stream) {
  CUtensorMap q_map{};
  CUtensorMap k_map{};
  if (Status s = tensor_map::encode_lines(encoder, q_map, query_tensor(instance, params)); !s.ok())
    return s;
  if (maps_keys(instance.source)) {
    const Status s = tensor_map::encode_lines(encoder, k_map, key_tensor(instance, params));
    if (!s.ok()) return s;
  }
  Params copy = params;
  void* arguments[] = {&q_map, &k_map, &copy};
  cudaError_t error = base::cuda::start({.kernel = instance.kernel,
                                         .blocks = grid.blocks,
                                         .threads = instance.threads,
                                         .shared_bytes = instance.shared_bytes},
                                        arguments, true, stream);
  if (error == cudaSuccess)
    error = sm80::start_merge(instance.dtype, grid.merge_blocks, params,
                              params.block_rows == kRows && instance.source != KeySource::e4m3,
                              true, stream);
  if (error == cudaSuccess) return {};
  return failed(error, instance);
}

}  // namespace attune::kernels::mla_decode::sm90
