// The shipped ragged_prefill kernels (layer kernels).
#pragma once

#include <cstddef>

#include "kernels/dense/table.hpp"

namespace attune::kernels::ragged_prefill {

extern const dense::KernelRow kScalarRows[6];
extern const dense::KernelRow kAvx2Rows[6];
extern const dense::KernelRow kAvx512Rows[6];
extern const dense::KernelRow kAvx512Bf16Rows[4];
extern const dense::KernelRow kAmxRows[5];
/// The AMX rows on emulated tiles, for tests; no search finds them.
extern const dense::KernelRow kAmxEmulatedRows[5];

/// All rows but those of tiles, best first.
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
  int head_dim_qk = 0;
};

/// The tile row for it; nullptr if none.
[[nodiscard]] const dense::KernelRow* find_tiles(const TileWish& wish);

}  // namespace attune::kernels::ragged_prefill
