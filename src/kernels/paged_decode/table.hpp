// The shipped paged_decode kernels (layer kernels).
#pragma once

#include <cstddef>

#include "kernels/dense/table.hpp"

namespace attune::kernels::paged_decode {

extern const dense::KernelRow kScalarRows[6];
extern const dense::KernelRow kAvx2Rows[6];
extern const dense::KernelRow kAvx512Rows[6];
extern const dense::KernelRow kAvx512Bf16Rows[4];
extern const dense::KernelRow kAmxRows[7];
/// Of int8 keys, where tiles multiply bytes.
extern const dense::KernelRow kAmxByteRow;
/// The rows of tiles on emulated ones, for tests.
extern const dense::KernelRow kAmxEmulatedRows[3];
extern const dense::KernelRow kAmxEmulatedByteRow;

/// All rows, best first.
[[nodiscard]] std::size_t num_rows();
[[nodiscard]] const dense::KernelRow& row(std::size_t i);

/// The first row that a CPU of level `isa` can run and that takes these dtypes; nullptr if none.
[[nodiscard]] const dense::KernelRow* find(simd::Isa isa, DType q_dtype, DType kv_dtype);

/// What tiles are asked to do.
struct TileWish {
  bool emulated = false;
  bool int8_products = false;  ///< the unit has them
  DType q_dtype = DType::bf16;
  DType kv_dtype = DType::bf16;
};

/// What a machine of level amx decodes with; with emulated tiles and the scalar row where that takes
/// none.
[[nodiscard]] const dense::KernelRow* find_tiles(const TileWish& wish);

}  // namespace attune::kernels::paged_decode
