// Keys and values of a batch, copied from their pages to rows that lie one after another (layer
// kernels): the host's side. Narrower ones are widened on the way; every fp8 number is a number of
// both 16-bit types, so nothing is rounded.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "base/fast_divisor.hpp"

namespace attune::kernels::gather_kv::sm80 {

/// One of K and V. Strides in elements.
struct Side {
  const void* in = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
  int head_dim = 0;     ///< a multiple of 16
  void* out = nullptr;  ///< [rows, num_heads, head_dim]
};

/// Row r is slot r % page_size of the r / page_size-th page of kv_indices: last pages are copied
/// whole, what lies in their unused slots with them.
struct Params {
  Side k;
  Side v;
  DType in_dtype = DType::bf16;              ///< that of the rows, or fp8
  DType out_dtype = DType::bf16;             ///< bf16 or fp16
  const std::int32_t* kv_indices = nullptr;  ///< page ids; nullptr: row r is page r, of one token
  std::int32_t page_size = 1;
  std::int64_t num_pages = 1;
  int num_heads = 1;
  const std::uint32_t* num_rows = nullptr;  ///< on the device: a captured launch meets the newest
};

/// Chunks of 8 numbers of one row of K and V together. Rows times these stay below 2^31.
[[nodiscard]] int chunks_of_row(const Params& params);

/// As many blocks as the card runs at once, whatever the number of rows.
[[nodiscard]] Status launch(const Params& params, int num_sms, cudaStream_t stream);

}  // namespace attune::kernels::gather_kv::sm80
