#include "backends/fa3/cuda/backend.hpp"

#include "backends/fa3/descriptor.hpp"
#include "backends/shared/cuda/hopper_prefill.hpp"
#include "backends/shared/cuda/latent.hpp"

namespace attune::backends::fa3 {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  if (context.spec.variant == Variant::mla) return shared::make_hopper_latent(context, kDescriptor);
  return shared::make_hopper_prefill(context, kDescriptor,
                                     kernels::ragged_prefill::sm90::Strategy::fa3);
}

}  // namespace attune::backends::fa3
