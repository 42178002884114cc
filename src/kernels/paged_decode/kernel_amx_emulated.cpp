#include "kernels/paged_decode/table.hpp"
#include "kernels/paged_decode/tile_body.hpp"
#include "kernels/simd/scalar_bf16.hpp"
#include "kernels/tile/amx_emulated.hpp"

namespace attune::kernels::paged_decode {
namespace {

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  using Unit = dense::TileUnit<simd::ScalarBf16, tile::Emulated>;
  using Other = dense::FmaUnit<simd::ScalarBf16>;
  return dense::make_row<TileBody<Unit, Other, T>, Other>(name, simd::Isa::scalar, T);
}

}  // namespace

const dense::KernelRow kAmxEmulatedRows[3] = {
    make<DType::bf16>("paged_decode/amx_emulated/bf16"),
    make<DType::fp8_e4m3>("paged_decode/amx_emulated/fp8_e4m3"),
    make<DType::fp8_e5m2>("paged_decode/amx_emulated/fp8_e5m2"),
};

}  // namespace attune::kernels::paged_decode
