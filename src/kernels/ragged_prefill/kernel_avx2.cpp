#include "kernels/ragged_prefill/body.hpp"
#include "kernels/ragged_prefill/table.hpp"
#include "kernels/simd/avx2.hpp"

namespace attune::kernels::ragged_prefill {
namespace {

using Unit = dense::FmaUnit<simd::Avx2>;

template <DType T>
constexpr dense::KernelRow make(const char* name) {
  return dense::make_row<Body<Unit, T>, Unit>(name, simd::Isa::avx2, T);
}

}  // namespace

const dense::KernelRow kAvx2Rows[6] = {
    make<DType::f32>("ragged_prefill/avx2/fp32"),
    make<DType::bf16>("ragged_prefill/avx2/bf16"),
    make<DType::f16>("ragged_prefill/avx2/fp16"),
    make<DType::fp8_e4m3>("ragged_prefill/avx2/fp8_e4m3"),
    make<DType::fp8_e5m2>("ragged_prefill/avx2/fp8_e5m2"),
    make<DType::i8>("ragged_prefill/avx2/int8"),
};

}  // namespace attune::kernels::ragged_prefill
