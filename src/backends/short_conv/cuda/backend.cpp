#include "backends/short_conv/cuda/backend.hpp"

#include "backends/shared/cuda/linear_backend.hpp"
#include "backends/short_conv/descriptor.hpp"

namespace attune::backends::short_conv {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::cuda::make_linear(kDescriptor, context);
}

}  // namespace attune::backends::short_conv
