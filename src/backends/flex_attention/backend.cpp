// The vector kernels of `cpu`, whose rows may also go through a mask by blocks and a score function.
#include <attune/backend.hpp>

#include "backends/flex_attention/descriptor.hpp"
#include "backends/shared/cpu_backend.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/ragged_prefill/table.hpp"

namespace attune::backends::flex_attention {

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  const auto find = [](const BackendContext& c) {
    const auto isa = static_cast<kernels::simd::Isa>(c.device.isa);
    return shared::CpuKernels{
        .decode = kernels::paged_decode::find(isa, c.spec.q_dtype, c.spec.kv_dtype),
        .prefill = kernels::ragged_prefill::find(isa, c.spec.q_dtype, c.spec.kv_dtype)};
  };
  return shared::make_cpu_backend(context, kDescriptor, find, plan::CascadeMode::off);
}

}  // namespace attune::backends::flex_attention
