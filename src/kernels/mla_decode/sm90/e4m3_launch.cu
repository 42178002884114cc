#include "kernels/mla_decode/sm90/e4m3_kernel.cuh"
#include "kernels/mla_decode/sm90/launch.hpp"

namespace attune::kernels::mla_decode::sm90 {

Instance e4m3_instance() {
  return {.dtype = DType::bf16,
          .source = KeySource::e4m3,
          .threads = e4m3::Roles::kThreads,
          .shared_bytes = sizeof(e4m3::Shared),
          .kernel = ptx::kernel_handle(&e4m3::mla_decode_e4m3)};
}

}  // namespace attune::kernels::mla_decode::sm90
