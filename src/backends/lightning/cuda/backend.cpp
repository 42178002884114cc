#include "backends/lightning/cuda/backend.hpp"

#include "backends/lightning/descriptor.hpp"
#include "backends/shared/cuda/linear_backend.hpp"

namespace attune::backends::lightning {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::cuda::make_linear(kDescriptor, context);
}

}  // namespace attune::backends::lightning
