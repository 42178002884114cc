#include "kernels/paged_decode/body.hpp"
#include "kernels/paged_decode/byte_tiles.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/paged_decode/tile_body.hpp"
#include "kernels/simd/scalar_bf16.hpp"
#include "kernels/tile/amx_emulated.hpp"

namespace attune::kernels::paged_decode {
namespace {

using Unit = dense::TileUnit<simd::ScalarBf16, tile::Emulated>;
using Other = dense::FmaUnit<simd::ScalarBf16>;

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  return dense::make_row<TileBody<Unit, Other, T>, Other>(name, simd::Isa::scalar, T);
}

}  // namespace

const dense::KernelRow kAmxEmulatedRows[3] = {
    make<DType::bf16>("paged_decode/amx_emulated/bf16"),
    make<DType::fp8_e4m3>("paged_decode/amx_emulated/fp8_e4m3"),
    make<DType::fp8_e5m2>("paged_decode/amx_emulated/fp8_e5m2"),
};

const dense::KernelRow kAmxEmulatedByteRow =
    dense::make_row<ByteTiles<Unit, Body<Other, DType::i8>>, Other>(
        "paged_decode/amx_emulated/int8_tiles", simd::Isa::scalar, DType::i8);

}  // namespace attune::kernels::paged_decode
