#include "backends/hpc_ops/cuda/backend.hpp"

#include "backends/hpc_ops/descriptor.hpp"
#include "backends/shared/cuda/paged_attention.hpp"

namespace attune::backends::hpc_ops {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::make_paged_attention(context, kDescriptor, {.hopper = true});
}

}  // namespace attune::backends::hpc_ops
