#include "kernels/probe/body.hpp"
#include "kernels/probe/table.hpp"
#include "kernels/simd/avx512.hpp"

namespace attune::kernels::probe {

using Product = Products<dense::FmaUnit<simd::Avx512>>;

const ProductProbe kAvx512Product = {.instruction = "vfmadd",
                                     .isa = simd::Isa::avx512,
                                     .input = DType::f32,
                                     .flops_per_round = Product::kFlopsPerRound,
                                     .run = &Product::run};
const ReadProbe kAvx512Read = {.isa = simd::Isa::avx512,
                               .in_order = &Reads<simd::Avx512>::run,
                               .in_streams = &Streams<simd::Avx512>::run};

}  // namespace attune::kernels::probe
