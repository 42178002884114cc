#include "backends/flashmla/cuda/backend.hpp"

#include "backends/flashmla/descriptor.hpp"
#include "backends/shared/cuda/latent.hpp"

namespace attune::backends::flashmla {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::make_hopper_latent(context, kDescriptor);
}

}  // namespace attune::backends::flashmla
