#include "kernels/probe/body.hpp"
#include "kernels/probe/table.hpp"
#include "kernels/simd/scalar.hpp"

namespace attune::kernels::probe {

using Product = Products<dense::FmaUnit<simd::Scalar>>;

const ProductProbe kScalarProduct = {.instruction = "multiply and add",
                                     .isa = simd::Isa::scalar,
                                     .input = DType::f32,
                                     .flops_per_round = Product::kFlopsPerRound,
                                     .run = &Product::run};
const ReadProbe kScalarRead = {.isa = simd::Isa::scalar,
                               .in_order = &Reads<simd::Scalar>::run,
                               .in_streams = &Streams<simd::Scalar>::run};

}  // namespace attune::kernels::probe
