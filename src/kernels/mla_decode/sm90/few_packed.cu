#include "kernels/mla_decode/sm90/few_packed.cuh"

#include "kernels/mla_decode/sm90/few_launch.hpp"

namespace attune::kernels::mla_decode::sm90::few {

namespace {

template <int Rows>
Instance make() {
  return {.dtype = DType::bf16,
          .source = KeySource::packed,
          .threads = PackedRoles::kThreads,
          .shared_bytes = sizeof(PackedShared<Rows>),
          .kernel = ptx::kernel_handle(&mla_decode_few_packed<Rows>)};
}

}  // namespace

Instance packed_instance(int rows) { return rows > 16 ? make<32>() : make<16>(); }

}  // namespace attune::kernels::mla_decode::sm90::few
