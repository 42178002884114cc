#include "kernels/mla_decode/sm90/few_packed.cuh"

#include "kernels/mla_decode/sm90/few_launch.hpp"

namespace attune::kernels::mla_decode::sm90::few {

namespace {

template <int Rows, bool Lists>
Instance make(KeySource source) {
  return {.dtype = DType::bf16,
          .source = source,
          .threads = PackedRoles::kThreads,
          .shared_bytes = sizeof(PackedShared<Rows>),
          .kernel = ptx::kernel_handle(&mla_decode_few_packed<Rows, Lists>)};
}

}  // namespace

Instance packed_instance(KeySource source, int rows) {
  if (source == KeySource::listed_packed)
    return rows > 16 ? make<32, true>(source) : make<16, true>(source);
  return rows > 16 ? make<32, false>(source) : make<16, false>(source);
}

}  // namespace attune::kernels::mla_decode::sm90::few
