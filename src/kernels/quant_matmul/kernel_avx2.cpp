#include "kernels/quant_matmul/rows.hpp"
#include "kernels/quant_matmul/unit_avx2.hpp"

namespace attune::kernels::quant_matmul {
namespace {

template <int kBits, int kGroup, Scales kScales, bool kMin>
constexpr KernelRow row(const char* name) {
  return make_row<UnitAvx2, kBits, kGroup, kScales, kMin>(name, Needs::avx2);
}

}  // namespace

constinit const KernelRow kAvx2Rows[kNumLayouts] = {
    row<4, 32, Scales::halves, false>("quant_matmul/avx2/q4_0"),
    row<4, 32, Scales::halves, true>("quant_matmul/avx2/q4_1"),
    row<8, 32, Scales::halves, false>("quant_matmul/avx2/q5_0,q8_0"),
    row<8, 32, Scales::halves, true>("quant_matmul/avx2/q5_1"),
    row<4, 16, Scales::unsigned_bytes, true>("quant_matmul/avx2/q2_k"),
    row<4, 16, Scales::signed_bytes, false>("quant_matmul/avx2/q3_k"),
    row<4, 32, Scales::unsigned_bytes, true>("quant_matmul/avx2/q4_k"),
    row<8, 32, Scales::unsigned_bytes, true>("quant_matmul/avx2/q5_k"),
    row<8, 16, Scales::signed_bytes, false>("quant_matmul/avx2/q6_k"),
};
constinit const KernelSet kAvx2Set = make_set<UnitAvx2>("avx2", Needs::avx2, kAvx2Rows);

}  // namespace attune::kernels::quant_matmul
