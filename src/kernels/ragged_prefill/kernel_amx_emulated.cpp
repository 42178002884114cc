#include "kernels/ragged_prefill/table.hpp"
#include "kernels/ragged_prefill/tile_body.hpp"
#include "kernels/simd/scalar_bf16.hpp"
#include "kernels/tile/amx_emulated.hpp"

namespace attune::kernels::ragged_prefill {
namespace {

using Unit = dense::TileUnit<simd::ScalarBf16, tile::Emulated>;

template <DType T, tile::Cells kCells = tile::Cells::bf16>
constexpr dense::KernelRow make(const char* name) {
  using Body = TileBody<Unit, T, kCells>;
  dense::KernelRow row = dense::make_row<Body, Unit>(name, simd::Isa::scalar, T);
  row.numbers_per_operand = Body::kStepDims;
  return row;
}

}  // namespace

const dense::KernelRow kAmxEmulatedRows[5] = {
    make<DType::bf16>("ragged_prefill/amx_emulated/bf16"),
    make<DType::fp8_e4m3>("ragged_prefill/amx_emulated/fp8_e4m3"),
    make<DType::fp8_e5m2>("ragged_prefill/amx_emulated/fp8_e5m2"),
    make<DType::i8, tile::Cells::int8>("ragged_prefill/amx_emulated/int8"),
    make<DType::i8>("ragged_prefill/amx_emulated/int8_widened"),
};

}  // namespace attune::kernels::ragged_prefill
