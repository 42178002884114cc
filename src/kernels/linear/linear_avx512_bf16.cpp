#include "kernels/linear/body.hpp"
#include "kernels/linear/convolution_body.hpp"
#include "kernels/linear/table.hpp"
#include "kernels/simd/avx512_bf16.hpp"

namespace attune::kernels::linear {
namespace {

using Pairs = Body<dense::Bf16Unit<simd::Avx512Bf16>>;
using Exact = Body<dense::FmaUnit<simd::Avx512Bf16>>;

/// Activations in fp32 are multiplied in fp32.
void run(const Params& p, const Item& item, float* scratch) {
  p.bf16 ? Pairs::run(p, item, scratch) : Exact::run(p, item, scratch);
}

std::int64_t scratch_floats(const Params& p) {
  const std::int64_t pairs = Pairs::scratch_floats(p);
  const std::int64_t exact = Exact::scratch_floats(p);
  return pairs > exact ? pairs : exact;
}

}  // namespace

const Kernel kAvx512Bf16Kernel{
    .isa = Isa::avx512_bf16,
    .run = run,
    .scratch_floats = scratch_floats,
    .convolve = ConvolutionBody<simd::Avx512Bf16>::run,
    .convolution_floats = ConvolutionBody<simd::Avx512Bf16>::scratch_floats,
};

}  // namespace attune::kernels::linear
