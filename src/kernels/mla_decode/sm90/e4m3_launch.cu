#include "kernels/mla_decode/sm90/e4m3_kernel.cuh"
#include "kernels/mla_decode/sm90/launch.hpp"

namespace attune::kernels::mla_decode::sm90 {
namespace {

template <int Rows>
Instance make() {
  return {.dtype = DType::bf16,
          .source = KeySource::e4m3,
          .threads = e4m3::Roles::kThreads,
          .shared_bytes = sizeof(e4m3::Shared),
          .kernel = ptx::kernel_handle(&e4m3::mla_decode_e4m3<Rows>)};
}

}  // namespace

Instance e4m3_instance(int rows) {
  if (rows >= kRows) return make<kRows>();
  return rows > kFewRows ? make<2 * kFewRows>() : make<kFewRows>();
}

}  // namespace attune::kernels::mla_decode::sm90
