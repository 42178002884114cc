#include "kernels/ragged_prefill/body.hpp"
#include "kernels/ragged_prefill/table.hpp"
#include "kernels/simd/avx512_bf16.hpp"

namespace attune::kernels::ragged_prefill {
namespace {

using Unit = dense::Bf16Unit<simd::Avx512Bf16>;

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  return dense::make_row<Body<Unit, T>, Unit>(name, simd::Isa::avx512_bf16, T);
}

}  // namespace

const dense::KernelRow kAvx512Bf16Rows[4] = {
    make<DType::bf16>("ragged_prefill/avx512_bf16/bf16"),
    make<DType::fp8_e4m3>("ragged_prefill/avx512_bf16/fp8_e4m3"),
    make<DType::fp8_e5m2>("ragged_prefill/avx512_bf16/fp8_e5m2"),
    make<DType::i8>("ragged_prefill/avx512_bf16/int8"),
};

}  // namespace attune::kernels::ragged_prefill
