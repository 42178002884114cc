#include "kernels/probe/body.hpp"
#include "kernels/probe/table.hpp"
#include "kernels/simd/avx2.hpp"

namespace attune::kernels::probe {

using Product = Products<dense::FmaUnit<simd::Avx2>>;

const ProductProbe kAvx2Product = {.instruction = "vfmadd",
                                   .isa = simd::Isa::avx2,
                                   .input = DType::f32,
                                   .flops_per_round = Product::kFlopsPerRound,
                                   .run = &Product::run};
const ReadProbe kAvx2Read = {.isa = simd::Isa::avx2,
                             .in_order = &Reads<simd::Avx2>::run,
                             .in_streams = &Streams<simd::Avx2>::run};

}  // namespace attune::kernels::probe
