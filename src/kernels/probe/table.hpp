// Loops that do nothing but multiply, or nothing but read: what a core can do at most (layer
// kernels). bench/ceilings times them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/tensor.hpp>

#include "kernels/simd/isa.hpp"

namespace attune::kernels::probe {

struct ProductProbe {
  const char* instruction = "";
  simd::Isa isa = simd::Isa::scalar;
  DType input = DType::f32;
  double flops_per_round = 0.0;
  /// Independent sums, enough to hide latency; `sink` keeps them alive.
  void (*run)(std::int64_t rounds, float* sink) = nullptr;
};

struct ReadProbe {
  using Run = void (*)(const void* from, std::int64_t bytes, float* sink);
  simd::Isa isa = simd::Isa::scalar;
  /// Both read each cache line once, fetching ahead; `bytes` is a multiple of 4096.
  Run in_order = nullptr;
  Run in_streams = nullptr;
};

extern const ProductProbe kScalarProduct;
extern const ProductProbe kAvx2Product;
extern const ProductProbe kAvx512Product;
extern const ProductProbe kAvx512Bf16Product;
extern const ProductProbe kAmxProduct;
extern const ProductProbe kAmxInt8Product;
extern const ReadProbe kScalarRead;
extern const ReadProbe kAvx2Read;
extern const ReadProbe kAvx512Read;

/// The fastest products of `input` on a CPU of level `isa`; fp32 products serve every input.
[[nodiscard]] const ProductProbe& product_probe(simd::Isa isa, DType input);
[[nodiscard]] const ReadProbe& read_probe(simd::Isa isa);

}  // namespace attune::kernels::probe
