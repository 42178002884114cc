// AMX-BF16 tiles for everything that multiplies a packed tile of keys; decode of small groups,
// which memory binds, reads its keys in place with AVX-512-BF16, as backend `cpu` does.
#include <attune/backend.hpp>

#include "backends/intel_amx/descriptor.hpp"
#include "backends/intel_amx/emulated.hpp"
#include "backends/shared/cpu_backend.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/ragged_prefill/table.hpp"

namespace attune::backends::intel_amx {

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  return shared::make_cpu_backend(context, kDescriptor, [](const BackendContext& c) {
    if (c.device.isa < CpuIsa::amx || c.spec.q_dtype != DType::bf16) return shared::CpuKernels{};
    return shared::CpuKernels{
        .decode = kernels::paged_decode::find(kernels::simd::Isa::avx512_bf16, c.spec.q_dtype,
                                              c.spec.kv_dtype),
        .prefill = kernels::ragged_prefill::find_tiles(false, c.spec.q_dtype, c.spec.kv_dtype)};
  });
}

Result<std::unique_ptr<Backend>> make_emulated(const BackendContext& context) {
  return shared::make_cpu_backend(context, kDescriptor, [](const BackendContext& c) {
    return shared::CpuKernels{
        .decode = kernels::paged_decode::find(kernels::simd::Isa::scalar, c.spec.q_dtype,
                                              c.spec.kv_dtype),
        .prefill = kernels::ragged_prefill::find_tiles(true, c.spec.q_dtype, c.spec.kv_dtype)};
  });
}

}  // namespace attune::backends::intel_amx
