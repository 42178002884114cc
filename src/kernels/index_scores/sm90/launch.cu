#include "kernels/index_scores/sm90/launch.hpp"

#include <cuda.h>
#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/index_scores/sm90/kernel.cuh"

namespace attune::kernels::index_scores::sm90 {
namespace {

constexpr int kFewRows = 64;
constexpr int kManyRows = 256;  ///< in two halves

template <class Element, int Columns, int Halves>
Instance make(DType dtype) {
  return {.dtype = dtype,
          .rows = Columns * Halves,
          .shared_bytes = sizeof(Shared<Element, Columns * Halves>),
          .kernel = ptx::kernel_handle(&index_scores<Element, Columns, Halves>)};
}

template <class Element>
Instance of_rows(DType dtype, bool few) {
  return few ? make<Element, kFewRows, 1>(dtype) : make<Element, kManyRows / 2, 2>(dtype);
}

}  // namespace

Instance instance_of(DType dtype, int num_heads, std::int64_t tokens) {
  const bool few = tokens * rows_of_token(num_heads) <= kFewRows;
  return dtype == DType::f16 ? of_rows<__half>(dtype, few) : of_rows<__nv_bfloat16>(dtype, few);
}

Status prepare(const Instance& instance) {
  return base::cuda::call_status(
      cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           instance.shared_bytes),
      "index_scores: shared memory");
}

Status launch(const Instance& instance, tensor_map::Encoder encoder, const sm80::Params& params,
              const Work& work, cudaStream_t stream) {
  const int rows_of_token = sm90::rows_of_token(params.num_heads);
  CUtensorMap q_map{};
  CUtensorMap k_map{};
  if (Status s = tensor_map::encode(encoder, q_map,
                                    {.name = "index_q",
                                     .dtype = instance.dtype,
                                     .base = params.q,
                                     .rank = 3,
                                     .dims = {params.head_dim, params.num_heads, work.q_tokens},
                                     .strides = {params.q_head_stride, params.q_token_stride},
                                     .box = {64, rows_of_token, instance.rows / rows_of_token}});
      !s.ok())
    return s;
  if (maps_keys(params.page_size)) {
    const Status s =
        tensor_map::encode(encoder, k_map,
                           {.name = "the index cache",
                            .dtype = instance.dtype,
                            .base = params.keys,
                            .rank = 3,
                            .dims = {params.head_dim, params.page_size, work.num_pages},
                            .strides = {params.token_stride, params.page_stride},
                            .box = {64, kKeys / 2, 1}});
    if (!s.ok()) return s;
  }
  sm80::Params copy = params;
  const Group* groups = work.groups;
  const Share* shares = work.shares;
  void* arguments[] = {&q_map, &k_map, &copy, &groups, &shares};
  return base::cuda::call_status(base::cuda::start({.kernel = instance.kernel,
                                                    .blocks = work.blocks,
                                                    .threads = kThreads,
                                                    .shared_bytes = instance.shared_bytes},
                                                   arguments, true, stream),
                                 "index_scores");
}

}  // namespace attune::kernels::index_scores::sm90
