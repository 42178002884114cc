#include "backends/kda/cuda/backend.hpp"

#include "backends/kda/descriptor.hpp"
#include "backends/shared/cuda/linear_backend.hpp"

namespace attune::backends::kda {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::cuda::make_linear(kDescriptor, context);
}

}  // namespace attune::backends::kda
