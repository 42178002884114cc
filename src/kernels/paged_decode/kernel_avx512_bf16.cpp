#include "kernels/paged_decode/body.hpp"
#include "kernels/paged_decode/byte_body.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/simd/avx512_bf16.hpp"

namespace attune::kernels::paged_decode {
namespace {

using Unit = dense::Bf16Unit<simd::Avx512Bf16>;

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  return dense::make_row<Body<Unit, T>, Unit>(name, simd::Isa::avx512_bf16, T);
}

constexpr dense::KernelRow make_bytes(const char* name) {
  using Bytes = ByteBody<Unit>;
  dense::KernelRow row = dense::make_row<Bytes, Unit>(name, simd::Isa::avx512_bf16, DType::i8);
  row.numbers_per_operand = Bytes::kStep;
  return row;
}

}  // namespace

const dense::KernelRow kAvx512Bf16Rows[4] = {
    make<DType::bf16>("paged_decode/avx512_bf16/bf16"),
    make<DType::fp8_e4m3>("paged_decode/avx512_bf16/fp8_e4m3"),
    make<DType::fp8_e5m2>("paged_decode/avx512_bf16/fp8_e5m2"),
    make_bytes("paged_decode/avx512_bf16/int8"),
};

}  // namespace attune::kernels::paged_decode
