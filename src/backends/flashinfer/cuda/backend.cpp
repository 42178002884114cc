#include "backends/flashinfer/cuda/backend.hpp"

#include "backends/flashinfer/descriptor.hpp"
#include "backends/shared/cuda/latent.hpp"
#include "backends/shared/cuda/paged_attention.hpp"

namespace attune::backends::flashinfer {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  if (context.spec.variant == Variant::mla) return shared::make_gather_latent(context, kDescriptor);
  return shared::make_paged_attention(context, kDescriptor);
}

}  // namespace attune::backends::flashinfer
