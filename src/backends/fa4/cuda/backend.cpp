#include "backends/fa4/cuda/backend.hpp"

#include "backends/fa4/descriptor.hpp"
#include "backends/shared/cuda/hopper_prefill.hpp"

namespace attune::backends::fa4 {

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  return shared::make_hopper_prefill(context, kDescriptor,
                                     kernels::ragged_prefill::sm90::Strategy::fa4);
}

}  // namespace attune::backends::fa4
