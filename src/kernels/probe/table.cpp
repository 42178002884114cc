#include "kernels/probe/table.hpp"

namespace attune::kernels::probe {

const ProductProbe& product_probe(simd::Isa isa, DType input) {
  const ProductProbe* const best_first[] = {&kAmxInt8Product, &kAmxProduct, &kAvx512Bf16Product,
                                            &kAvx512Product, &kAvx2Product};
  for (const ProductProbe* probe : best_first)
    if (probe->isa <= isa && (probe->input == DType::f32 || probe->input == input)) return *probe;
  return kScalarProduct;
}

const ReadProbe& read_probe(simd::Isa isa) {
  const ReadProbe* const best_first[] = {&kAvx512Read, &kAvx2Read};
  for (const ReadProbe* probe : best_first)
    if (probe->isa <= isa) return *probe;
  return kScalarRead;
}

}  // namespace attune::kernels::probe
