// Keys of two pools that are values and no more (DeepSeek-V4), by the kernels of many rows and of few.
#include "kernels/mla_decode/sm90/few_kernel.cuh"
#include "kernels/mla_decode/sm90/kernel.cuh"
#include "kernels/mla_decode/sm90/launch.hpp"

namespace attune::kernels::mla_decode::sm90 {
namespace {

template <class Element>
Instance many_rows(DType dtype) {
  return {.dtype = dtype,
          .source = KeySource::pooled,
          .threads = PooledKeys<Element>::Roles::kThreads,
          .shared_bytes = sizeof(Shared<Element>),
          .kernel = ptx::kernel_handle(&mla_decode<Element, PooledKeys>)};
}

template <int Rows>
Instance few_rows() {
  using Element = __nv_bfloat16;
  return {.dtype = DType::bf16,
          .source = KeySource::pooled,
          .threads = few::kThreads<PooledKeys<Element>>,
          .shared_bytes = sizeof(few::Shared<Element, Rows>),
          .kernel = ptx::kernel_handle(&few::mla_decode_few<Element, PooledKeys, Rows>)};
}

}  // namespace

Instance pooled_instance(DType dtype, int rows) {
  if (dtype == DType::f16) return many_rows<__half>(dtype);
  if (rows >= kRows) return many_rows<__nv_bfloat16>(dtype);
  return rows > 16 ? few_rows<32>() : few_rows<16>();
}

}  // namespace attune::kernels::mla_decode::sm90
