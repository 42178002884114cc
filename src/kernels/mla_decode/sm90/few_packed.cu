#include "kernels/mla_decode/sm90/few_packed.cuh"

#include "kernels/mla_decode/sm90/few_launch.hpp"

namespace attune::kernels::mla_decode::sm90::few {

Instance packed_instance() {
  return {.dtype = DType::bf16,
          .source = KeySource::packed,
          .threads = PackedRoles::kThreads,
          .shared_bytes = sizeof(PackedShared),
          .kernel = ptx::kernel_handle(&mla_decode_few_packed)};
}

}  // namespace attune::kernels::mla_decode::sm90::few
