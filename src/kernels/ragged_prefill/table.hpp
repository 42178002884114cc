// The shipped ragged_prefill kernels (layer kernels).
#pragma once

#include <cstddef>

#include "kernels/dense/table.hpp"

namespace attune::kernels::ragged_prefill {

extern const dense::KernelRow kScalarRows[6];
extern const dense::KernelRow kAvx2Rows[6];
extern const dense::KernelRow kAvx512Rows[6];
extern const dense::KernelRow kAvx512Bf16Rows[4];
extern const dense::KernelRow kAmxRows[4];
/// The AMX rows on emulated tiles, for tests; no search finds them.
extern const dense::KernelRow kAmxEmulatedRows[4];

/// All rows but those of tiles, best first.
[[nodiscard]] std::size_t num_rows();
[[nodiscard]] const dense::KernelRow& row(std::size_t i);

/// The first row that a CPU of level `isa` can run and that takes these dtypes; nullptr if none.
[[nodiscard]] const dense::KernelRow* find(simd::Isa isa, DType q_dtype, DType kv_dtype);

/// The tile row for this dtype; nullptr if none.
[[nodiscard]] const dense::KernelRow* find_tiles(bool emulated, DType q_dtype, DType kv_dtype);

}  // namespace attune::kernels::ragged_prefill
