// Decode on machines with AMX: no tiles, whose rows a small group does not fill, but the vector
// products that those cores are fast at. vdpbf16ps takes them four times as long as a fused
// multiply-add.
#include "kernels/paged_decode/body.hpp"
#include "kernels/paged_decode/byte_body.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/simd/amx.hpp"

namespace attune::kernels::paged_decode {
namespace {

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  using Unit = dense::SplitUnit<simd::Amx>;
  return dense::make_row<Body<Unit, T>, Unit>(name, simd::Isa::amx, T);
}

constexpr dense::KernelRow make_bytes(const char* name) {
  using Unit = dense::Bf16Unit<simd::Amx>;
  using Bytes = ByteBody<Unit>;
  dense::KernelRow row = dense::make_row<Bytes, Unit>(name, simd::Isa::amx, DType::i8);
  row.numbers_per_operand = Bytes::kStep;
  return row;
}

}  // namespace

const dense::KernelRow kAmxRows[4] = {
    make<DType::bf16>("paged_decode/amx/bf16"),
    make<DType::fp8_e4m3>("paged_decode/amx/fp8_e4m3"),
    make<DType::fp8_e5m2>("paged_decode/amx/fp8_e5m2"),
    make_bytes("paged_decode/amx/int8"),
};

}  // namespace attune::kernels::paged_decode
