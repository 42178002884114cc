#include "backends/flashinfer/cuda/backend.hpp"

#include "backends/flashinfer/descriptor.hpp"
#include "backends/shared/cuda/latent.hpp"
#include "backends/shared/cuda/paged_attention.hpp"

namespace attune::backends::flashinfer {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return make_cuda_with(context, {.cascade = plan::CascadeMode::by_cost, .hopper = true});
}

Result<std::unique_ptr<Backend>> make_cuda_with(const BackendContext& context,
                                                const shared::PagedOptions& options) {
  if (context.spec.variant == Variant::mla)
    return shared::make_gather_latent(context, kDescriptor, shared::LatentWidths::deepseek);
  return shared::make_paged_attention(context, kDescriptor, options);
}

}  // namespace attune::backends::flashinfer
