#include "backends/mamba2/descriptor.hpp"
#include "backends/shared/linear_backend.hpp"

namespace attune::backends::mamba2 {

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  return shared::make_linear(kDescriptor, context, shared::LinearKernels::vector);
}

}  // namespace attune::backends::mamba2
