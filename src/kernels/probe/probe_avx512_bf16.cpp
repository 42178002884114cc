#include "kernels/probe/body.hpp"
#include "kernels/probe/table.hpp"
#include "kernels/simd/avx512_bf16.hpp"

namespace attune::kernels::probe {

using Product = Products<dense::Bf16Unit<simd::Avx512Bf16>>;

const ProductProbe kAvx512Bf16Product = {.instruction = "vdpbf16ps",
                                         .isa = simd::Isa::avx512_bf16,
                                         .input = DType::bf16,
                                         .flops_per_round = Product::kFlopsPerRound,
                                         .run = &Product::run};

}  // namespace attune::kernels::probe
