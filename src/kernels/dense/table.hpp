// Rows of shipped kernels: each ISA file defines its own, an operation's table.cpp joins them, best
// first (layer kernels).
#pragma once

#include <attune/tensor.hpp>

#include "kernels/dense/params.hpp"
#include "kernels/simd/isa.hpp"

namespace attune::kernels::dense {

struct KernelRow {
  const char* name = "";
  simd::Isa isa = simd::Isa::scalar;
  DType kv_dtype = DType::f32;
  /// Queries are rounded to bf16 for products of bf16 pairs: right only where they are bf16
  /// already.
  bool needs_bf16_queries = false;
  int number_bytes = 4;         ///< of Unit::Number
  int numbers_per_operand = 1;  ///< what strides are multiples of
  int row_multiple = 1;         ///< what rows are padded to
  int lanes = 1;                ///< V::kLanes
  int packed_keys = 0;          ///< keys and values packed at a time
  Kernel run = nullptr;
};

template <class Body, class Unit>
[[nodiscard]] constexpr KernelRow make_row(const char* name, simd::Isa isa, DType kv_dtype) {
  return {.name = name,
          .isa = isa,
          .kv_dtype = kv_dtype,
          .needs_bf16_queries = Unit::kPair == 2,
          .number_bytes = static_cast<int>(sizeof(typename Unit::Number)),
          .numbers_per_operand = Unit::kNumbers > Unit::kDepth ? Unit::kNumbers : Unit::kDepth,
          .row_multiple = Unit::kDepth > Unit::kPair ? Unit::kStripRows : 1,
          .lanes = Unit::V::kLanes,
          .packed_keys = Body::kPackedKeys,
          .run = &Body::run};
}

}  // namespace attune::kernels::dense
