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
/// The rows of tiles on emulated ones, for tests; no search finds them.
extern const dense::KernelRow kAmxEmulatedRows[3];

/// All rows, best first.
[[nodiscard]] std::size_t num_rows();
[[nodiscard]] const dense::KernelRow& row(std::size_t i);

/// The first row that a CPU of level `isa` can run and that takes these dtypes; nullptr if none.
[[nodiscard]] const dense::KernelRow* find(simd::Isa isa, DType q_dtype, DType kv_dtype);

/// What a machine of level amx would decode with, on emulated tiles where that takes tiles, and
/// otherwise the scalar row.
[[nodiscard]] const dense::KernelRow* find_emulated(DType q_dtype, DType kv_dtype);

}  // namespace attune::kernels::paged_decode
