#include "backends/triton/cuda/backend.hpp"

#include "backends/shared/cuda/paged_attention.hpp"
#include "backends/triton/descriptor.hpp"

namespace attune::backends::triton {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::make_paged_attention(context, kDescriptor);
}

}  // namespace attune::backends::triton
