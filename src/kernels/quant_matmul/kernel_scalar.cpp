#include "kernels/quant_matmul/rows.hpp"
#include "kernels/quant_matmul/unit_scalar.hpp"

namespace attune::kernels::quant_matmul {
namespace {

template <int kBits, int kGroup, Scales kScales, bool kMin>
constexpr KernelRow row(const char* name) {
  return make_row<UnitScalar, kBits, kGroup, kScales, kMin>(name, Needs::nothing);
}

}  // namespace

constinit const KernelRow kScalarRows[kNumLayouts] = {
    row<4, 32, Scales::halves, false>("quant_matmul/scalar/q4_0"),
    row<4, 32, Scales::halves, true>("quant_matmul/scalar/q4_1"),
    row<8, 32, Scales::halves, false>("quant_matmul/scalar/q5_0,q8_0"),
    row<8, 32, Scales::halves, true>("quant_matmul/scalar/q5_1"),
    row<4, 16, Scales::unsigned_bytes, true>("quant_matmul/scalar/q2_k"),
    row<4, 16, Scales::signed_bytes, false>("quant_matmul/scalar/q3_k"),
    row<4, 32, Scales::unsigned_bytes, true>("quant_matmul/scalar/q4_k"),
    row<8, 32, Scales::unsigned_bytes, true>("quant_matmul/scalar/q5_k"),
    row<8, 16, Scales::signed_bytes, false>("quant_matmul/scalar/q6_k"),
};
constinit const KernelSet kScalarSet = make_set<UnitScalar>("scalar", Needs::nothing, kScalarRows);

}  // namespace attune::kernels::quant_matmul
