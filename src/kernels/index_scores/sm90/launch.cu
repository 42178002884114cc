#include "kernels/index_scores/sm90/launch.hpp"

#include <cuda_runtime.h>

#include "base/cuda/start.hpp"
#include "base/cuda/status.hpp"
#include "kernels/index_scores/sm90/kernel.cuh"

namespace attune::kernels::index_scores::sm90 {
namespace {

constexpr int kFewRows = 64;
constexpr int kManyRows = 256;  ///< in two halves

template <class Element, int Columns, int Halves>
Instance make() {
  return {.rows = Columns * Halves,
          .shared_bytes = sizeof(Shared<Element, Columns * Halves>),
          .kernel = ptx::kernel_handle(&index_scores<Element, Columns, Halves>)};
}

template <class Element>
Instance of_rows(bool few) {
  return few ? make<Element, kFewRows, 1>() : make<Element, kManyRows / 2, 2>();
}

}  // namespace

Instance instance_of(DType dtype, int num_heads, std::int64_t tokens) {
  const bool few = tokens * rows_of_token(num_heads) <= kFewRows;
  return dtype == DType::f16 ? of_rows<__half>(few) : of_rows<__nv_bfloat16>(few);
}

Status prepare(const Instance& instance) {
  return base::cuda::call_status(
      cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           instance.shared_bytes),
      "index_scores: shared memory");
}

Status launch(const Instance& instance, const sm80::Params& params, const Group* groups,
              const Share* shares, int blocks, cudaStream_t stream) {
  sm80::Params copy = params;
  void* arguments[] = {&copy, &groups, &shares};
  return base::cuda::call_status(base::cuda::start({.kernel = instance.kernel,
                                                    .blocks = blocks,
                                                    .threads = kThreads,
                                                    .shared_bytes = instance.shared_bytes},
                                                   arguments, true, stream),
                                 "index_scores");
}

}  // namespace attune::kernels::index_scores::sm90
