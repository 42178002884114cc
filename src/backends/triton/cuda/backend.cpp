#include "backends/triton/cuda/backend.hpp"

#include "backends/shared/cuda/latent.hpp"
#include "backends/shared/cuda/paged_attention.hpp"
#include "backends/triton/descriptor.hpp"

namespace attune::backends::triton {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  if (context.spec.variant == Variant::mla)
    return shared::make_gather_latent(context, kDescriptor, shared::LatentWidths::any);
  return shared::make_paged_attention(context, kDescriptor);
}

}  // namespace attune::backends::triton
