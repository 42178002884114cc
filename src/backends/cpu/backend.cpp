// The best vector kernels that the device's instruction set allows.
#include <attune/backend.hpp>

#include "backends/cpu/descriptor.hpp"
#include "backends/cpu/with_cascade.hpp"
#include "backends/shared/cpu_backend.hpp"
#include "kernels/block_scores/table.hpp"
#include "kernels/index_scores/table.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/ragged_prefill/table.hpp"

namespace attune::backends::cpu {

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  return make_with_cascade(context, plan::CascadeMode::by_cost);
}

Result<std::unique_ptr<Backend>> make_with_cascade(const BackendContext& context,
                                                   plan::CascadeMode cascade) {
  const auto find = [](const BackendContext& c) {
    static_assert(static_cast<int>(CpuIsa::scalar) ==
                      static_cast<int>(kernels::simd::Isa::scalar) &&
                  static_cast<int>(CpuIsa::amx) == static_cast<int>(kernels::simd::Isa::amx));
    const auto isa = static_cast<kernels::simd::Isa>(c.device.isa);
    // Tokens of the fp8 latent cache are widened on their way in.
    const DType keys = c.kv_layout == KvLayout::mla_latent_fp8 ? DType::bf16 : c.spec.kv_dtype;
    return shared::CpuKernels{.decode = kernels::paged_decode::find(isa, c.spec.q_dtype, keys),
                              .prefill = kernels::ragged_prefill::find(isa, c.spec.q_dtype, keys),
                              .scores = kernels::index_scores::find(isa, c.spec.index_dtype),
                              .block_scores = kernels::block_scores::find(isa, c.spec.index_dtype)};
  };
  return shared::make_cpu_backend(context, kDescriptor, find, cascade);
}

}  // namespace attune::backends::cpu
