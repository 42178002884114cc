#include "backends/mamba2/cuda/backend.hpp"

#include "backends/mamba2/descriptor.hpp"
#include "backends/shared/cuda/linear_backend.hpp"

namespace attune::backends::mamba2 {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::cuda::make_linear(kDescriptor, context);
}

}  // namespace attune::backends::mamba2
