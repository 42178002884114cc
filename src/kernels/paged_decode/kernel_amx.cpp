// Decode on machines with AMX. Keys in bf16 and fp8 go through tiles, int8 ones through products of
// bytes, of tiles where they have them. Queries that are no bf16 meet keys in fp32: vdpbf16ps would
// take them four times as long as a fused multiply-add.
#include "kernels/paged_decode/body.hpp"
#include "kernels/paged_decode/byte_body.hpp"
#include "kernels/paged_decode/byte_tiles.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/paged_decode/tile_body.hpp"
#include "kernels/simd/amx.hpp"
#include "kernels/tile/amx.hpp"

namespace attune::kernels::paged_decode {
namespace {

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  using Unit = dense::SplitUnit<simd::Amx>;
  return dense::make_row<Body<Unit, T>, Unit>(name, simd::Isa::amx, T);
}

template <DType T>
constexpr dense::KernelRow make_tiles(const char* name) {
  using Unit = dense::TileUnit<simd::Amx, tile::AmxTiles>;
  using Other = dense::SplitUnit<simd::Amx>;
  dense::KernelRow row = dense::make_row<TileBody<Unit, Other, T>, Other>(name, simd::Isa::amx, T);
  row.needs_bf16_queries = true;
  return row;
}

using Bytes = ByteBody<dense::Bf16Unit<simd::Amx>>;

template <class Body>
constexpr dense::KernelRow make_bytes(const char* name) {
  using Unit = dense::Bf16Unit<simd::Amx>;
  dense::KernelRow row = dense::make_row<Body, Unit>(name, simd::Isa::amx, DType::i8);
  row.numbers_per_operand = Bytes::kStep;
  return row;
}

}  // namespace

const dense::KernelRow kAmxRows[7] = {
    make_tiles<DType::bf16>("paged_decode/amx/bf16"),
    make_tiles<DType::fp8_e4m3>("paged_decode/amx/fp8_e4m3"),
    make_tiles<DType::fp8_e5m2>("paged_decode/amx/fp8_e5m2"),
    // Queries that are no bf16.
    make<DType::bf16>("paged_decode/amx/bf16_fma"),
    make<DType::fp8_e4m3>("paged_decode/amx/fp8_e4m3_fma"),
    make<DType::fp8_e5m2>("paged_decode/amx/fp8_e5m2_fma"),
    make_bytes<Bytes>("paged_decode/amx/int8"),
};

const dense::KernelRow kAmxByteRow =
    make_bytes<ByteTiles<dense::TileUnit<simd::Amx, tile::AmxTiles>, Bytes>>(
        "paged_decode/amx/int8_tiles");

}  // namespace attune::kernels::paged_decode
