#include "backends/kda/descriptor.hpp"
#include "backends/shared/linear_backend.hpp"

namespace attune::backends::kda {

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  return shared::make_linear(kDescriptor, context, shared::LinearKernels::vector);
}

}  // namespace attune::backends::kda
