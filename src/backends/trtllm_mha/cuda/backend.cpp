#include "backends/trtllm_mha/cuda/backend.hpp"

#include "backends/shared/cuda/paged_attention.hpp"
#include "backends/trtllm_mha/descriptor.hpp"

namespace attune::backends::trtllm_mha {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::make_paged_attention(context, kDescriptor, {.hopper = true});
}

}  // namespace attune::backends::trtllm_mha
