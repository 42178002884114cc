#include "backends/flex_attention/cuda/backend.hpp"

#include "backends/flex_attention/descriptor.hpp"
#include "backends/shared/cuda/paged_attention.hpp"

namespace attune::backends::flex_attention {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  if (context.spec.score_mod)
    return unsupported(
        "flex_attention takes masks on cuda, where a host's function on logits cannot run: "
        "flex_attention on cpu calls it");
  return shared::make_paged_attention(context, kDescriptor, {.hopper = true});
}

}  // namespace attune::backends::flex_attention
