// The best vector kernels that the device's instruction set allows.
#include <attune/backend.hpp>

#include "backends/cpu/descriptor.hpp"
#include "backends/shared/cpu_backend.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/ragged_prefill/table.hpp"

namespace attune::backends::cpu {

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  return shared::make_cpu_backend(context, kDescriptor, [](const BackendContext& c) {
    static_assert(static_cast<int>(CpuIsa::scalar) ==
                      static_cast<int>(kernels::simd::Isa::scalar) &&
                  static_cast<int>(CpuIsa::amx) == static_cast<int>(kernels::simd::Isa::amx));
    const auto isa = static_cast<kernels::simd::Isa>(c.device.isa);
    return shared::CpuKernels{
        .decode = kernels::paged_decode::find(isa, c.spec.q_dtype, c.spec.kv_dtype),
        .prefill = kernels::ragged_prefill::find(isa, c.spec.q_dtype, c.spec.kv_dtype)};
  });
}

}  // namespace attune::backends::cpu
