// AMX tiles for everything that meets a key with more than a few rows, and for decode of small groups
// where keys lie evenly; other decode with the vector products that these cores are fast at.
#include <attune/backend.hpp>

#include "backends/intel_amx/descriptor.hpp"
#include "backends/intel_amx/emulated.hpp"
#include "backends/shared/cpu_backend.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/ragged_prefill/table.hpp"

namespace attune::backends::intel_amx {

namespace {

namespace decode = kernels::paged_decode;
namespace prefill = kernels::ragged_prefill;

decode::TileWish decode_wish(const BackendContext& c, bool emulated) {
  return {.emulated = emulated,
          .int8_products = c.device.has_amx_int8,
          .q_dtype = c.spec.q_dtype,
          .kv_dtype = c.spec.kv_dtype};
}

prefill::TileWish prefill_wish(const BackendContext& c, bool emulated) {
  return {.emulated = emulated,
          .int8_products = c.device.has_amx_int8,
          .q_dtype = c.spec.q_dtype,
          .kv_dtype = c.spec.kv_dtype,
          .head_dim_qk = c.spec.head_dim_qk};
}

}  // namespace

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  return shared::make_cpu_backend(context, kDescriptor, [](const BackendContext& c) {
    if (c.device.isa < CpuIsa::amx || c.spec.q_dtype != DType::bf16) return shared::CpuKernels{};
    return shared::CpuKernels{.decode = decode::find_tiles(decode_wish(c, false)),
                              .prefill = prefill::find_tiles(prefill_wish(c, false))};
  });
}

Result<std::unique_ptr<Backend>> make_emulated(const BackendContext& context) {
  return shared::make_cpu_backend(context, kDescriptor, [](const BackendContext& c) {
    return shared::CpuKernels{.decode = decode::find_tiles(decode_wish(c, true)),
                              .prefill = prefill::find_tiles(prefill_wish(c, true))};
  });
}

}  // namespace attune::backends::intel_amx
