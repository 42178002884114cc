#include "kernels/quant_matmul/rows.hpp"
#include "kernels/quant_matmul/unit_avx512_vnni.hpp"

namespace attune::kernels::quant_matmul {
namespace {

template <int kBits, int kGroup, Scales kScales, bool kMin>
constexpr KernelRow row(const char* name) {
  return make_row<UnitAvx512Vnni, kBits, kGroup, kScales, kMin>(name, Needs::avx512_vnni);
}

}  // namespace

constinit const KernelRow kAvx512VnniRows[kNumLayouts] = {
    row<4, 32, Scales::halves, false>("quant_matmul/avx512_vnni/q4_0"),
    row<4, 32, Scales::halves, true>("quant_matmul/avx512_vnni/q4_1"),
    row<8, 32, Scales::halves, false>("quant_matmul/avx512_vnni/q5_0,q8_0"),
    row<8, 32, Scales::halves, true>("quant_matmul/avx512_vnni/q5_1"),
    row<4, 16, Scales::unsigned_bytes, true>("quant_matmul/avx512_vnni/q2_k"),
    row<4, 16, Scales::signed_bytes, false>("quant_matmul/avx512_vnni/q3_k"),
    row<4, 32, Scales::unsigned_bytes, true>("quant_matmul/avx512_vnni/q4_k"),
    row<8, 32, Scales::unsigned_bytes, true>("quant_matmul/avx512_vnni/q5_k"),
    row<8, 16, Scales::signed_bytes, false>("quant_matmul/avx512_vnni/q6_k"),
};
constinit const KernelSet kAvx512VnniSet =
    make_set<UnitAvx512Vnni>("avx512_vnni", Needs::avx512_vnni, kAvx512VnniRows);

}  // namespace attune::kernels::quant_matmul
