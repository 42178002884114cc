#include "kernels/ragged_prefill/table.hpp"
#include "kernels/ragged_prefill/tile_body.hpp"
#include "kernels/simd/amx.hpp"
#include "kernels/tile/amx.hpp"

namespace attune::kernels::ragged_prefill {
namespace {

using Unit = dense::TileUnit<simd::Amx, tile::AmxTiles>;

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  return dense::make_row<TileBody<Unit, T>, Unit>(name, simd::Isa::amx, T);
}

}  // namespace

const dense::KernelRow kAmxRows[4] = {
    make<DType::bf16>("ragged_prefill/amx/bf16"),
    make<DType::fp8_e4m3>("ragged_prefill/amx/fp8_e4m3"),
    make<DType::fp8_e5m2>("ragged_prefill/amx/fp8_e5m2"),
    make<DType::i8>("ragged_prefill/amx/int8"),
};

}  // namespace attune::kernels::ragged_prefill
