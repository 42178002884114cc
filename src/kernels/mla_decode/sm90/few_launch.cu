#include "kernels/mla_decode/sm90/few_launch.hpp"

#include "kernels/mla_decode/sm90/few_kernel.cuh"

namespace attune::kernels::mla_decode::sm90::few {
namespace {

template <template <class> class Keys, int Rows>
Instance make(KeySource source) {
  using Element = __nv_bfloat16;
  return {.dtype = DType::bf16,
          .source = source,
          .threads = kThreads<Keys<Element>>,
          .shared_bytes = sizeof(Shared<Element, Rows>),
          .kernel = ptx::kernel_handle(&mla_decode_few<Element, Keys, Rows>)};
}

}  // namespace

Instance instance_of(KeySource source, int rows) {
  if (source == KeySource::listed)
    return rows > 16 ? make<ListedKeys, 32>(source) : make<ListedKeys, 16>(source);
  if (source == KeySource::tokens)
    return rows > 16 ? make<TokenKeys, 32>(source) : make<TokenKeys, 16>(source);
  return rows > 16 ? make<PageKeys, 32>(source) : make<PageKeys, 16>(source);
}

}  // namespace attune::kernels::mla_decode::sm90::few
