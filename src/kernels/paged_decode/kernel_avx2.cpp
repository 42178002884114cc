#include "kernels/paged_decode/body.hpp"
#include "kernels/paged_decode/table.hpp"
#include "kernels/simd/avx2.hpp"
#include "kernels/simd/avx2_codes.hpp"

namespace attune::kernels::paged_decode {
namespace {

using Unit = dense::FmaUnit<simd::Avx2>;

/// For fp8_e4m3, whose widening takes longer than its products.
struct CodesUnit : dense::FmaUnit<simd::Avx2Codes> {
  template <DType>
  static constexpr int kRun = 2;
  static Operand load(const Number* p) { return V::load_once(p); }
  template <DType>
  static void load_run(const void* p, Operand (&x)[2]) {
    V::load_sixteen(p, x);
  }
  template <DType T>
  static void load_keys(const void* p, Operand (&x)[2]) {
    load_run<T>(p, x);
  }
};

template <class Unit, DType T>
constexpr dense::KernelRow make(const char* name) {
  return dense::make_row<Body<Unit, T>, Unit>(name, simd::Isa::avx2, T);
}

}  // namespace

const dense::KernelRow kAvx2Rows[6] = {
    make<Unit, DType::f32>("paged_decode/avx2/fp32"),
    make<Unit, DType::bf16>("paged_decode/avx2/bf16"),
    make<Unit, DType::f16>("paged_decode/avx2/fp16"),
    make<CodesUnit, DType::fp8_e4m3>("paged_decode/avx2/fp8_e4m3"),
    make<Unit, DType::fp8_e5m2>("paged_decode/avx2/fp8_e5m2"),
    make<Unit, DType::i8>("paged_decode/avx2/int8"),
};

}  // namespace attune::kernels::paged_decode
