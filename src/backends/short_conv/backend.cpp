#include "backends/shared/linear_backend.hpp"
#include "backends/short_conv/descriptor.hpp"

namespace attune::backends::short_conv {

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  return shared::make_linear(kDescriptor, context, shared::LinearKernels::vector);
}

}  // namespace attune::backends::short_conv
