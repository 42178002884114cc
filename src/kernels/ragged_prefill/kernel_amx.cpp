#include "kernels/ragged_prefill/table.hpp"
#include "kernels/ragged_prefill/tile_body.hpp"
#include "kernels/simd/amx.hpp"
#include "kernels/tile/amx.hpp"

namespace attune::kernels::ragged_prefill {
namespace {

using Unit = dense::TileUnit<simd::Amx, tile::AmxTiles>;

template <DType T, tile::Cells kCells = tile::Cells::bf16>
constexpr dense::KernelRow make(const char* name) {
  using Body = TileBody<Unit, T, kCells>;
  dense::KernelRow row = dense::make_row<Body, Unit>(name, simd::Isa::amx, T);
  row.numbers_per_operand = Body::kStepDims;
  return row;
}

}  // namespace

const dense::KernelRow kAmxRows[5] = {
    make<DType::bf16>("ragged_prefill/amx/bf16"),
    make<DType::fp8_e4m3>("ragged_prefill/amx/fp8_e4m3"),
    make<DType::fp8_e5m2>("ragged_prefill/amx/fp8_e5m2"),
    make<DType::i8, tile::Cells::int8>("ragged_prefill/amx/int8"),
    make<DType::i8>("ragged_prefill/amx/int8_widened"),
};

}  // namespace attune::kernels::ragged_prefill
