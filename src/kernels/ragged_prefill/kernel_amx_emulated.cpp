#include "kernels/ragged_prefill/table.hpp"
#include "kernels/ragged_prefill/tile_body.hpp"
#include "kernels/simd/scalar_bf16.hpp"
#include "kernels/tile/amx_emulated.hpp"

namespace attune::kernels::ragged_prefill {
namespace {

using Unit = dense::TileUnit<simd::ScalarBf16, tile::Emulated>;

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  return dense::make_row<TileBody<Unit, T>, Unit>(name, simd::Isa::scalar, T);
}

}  // namespace

const dense::KernelRow kAmxEmulatedRows[4] = {
    make<DType::bf16>("ragged_prefill/amx_emulated/bf16"),
    make<DType::fp8_e4m3>("ragged_prefill/amx_emulated/fp8_e4m3"),
    make<DType::fp8_e5m2>("ragged_prefill/amx_emulated/fp8_e5m2"),
    make<DType::i8>("ragged_prefill/amx_emulated/int8"),
};

}  // namespace attune::kernels::ragged_prefill
