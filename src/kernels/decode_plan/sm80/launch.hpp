// Decode work listed on a GPU from lengths that only it knows (layer kernels): the list of
// attention::cut_requests, chunk for chunk. The host's side.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

#include "attention/mask.hpp"
#include "attention/work_list.hpp"
#include "base/fast_divisor.hpp"

namespace attune::kernels::decode_plan::sm80 {

/// Where the planning of one request stands.
struct Row {
  attention::DecodeRequest request;
  std::int32_t tiles = 0;
  std::int32_t level = 0;
  std::int32_t parts = 0;
  std::int32_t first_place = 0;
  std::int32_t first_chunk = 0;  ///< of a short request: how many chunks of short ones precede it
  std::int32_t reserved = 0;
};
static_assert(sizeof(Row) == 48, "three vector loads");

struct Params {
  const std::int32_t* kv_indptr = nullptr;         ///< [num_requests + 1]
  const std::int32_t* kv_last_page_len = nullptr;  ///< [num_requests]
  std::int32_t num_requests = 0;
  std::int32_t page_size = 1;
  // A request beyond these, or with entries that fall or a last page of no size, is an empty row.
  std::int64_t max_kv_entries = 0;
  std::int64_t max_kv_len = 0;

  attention::MaskRule mask;
  attention::CutRule rule;
  base::FastDivisor tile;  ///< tokens
  attention::DecodeWork* work = nullptr;
  attention::DecodeChunk* chunks = nullptr;  ///< [rule.max_chunks]
  Row* rows = nullptr;                       ///< [rows_wanted(num_requests)]
};

/// Of the workspace: small batches stay in shared memory.
[[nodiscard]] std::int64_t rows_wanted(std::int64_t num_requests);

/// Nothing waits, nothing is allocated; may be captured.
[[nodiscard]] Status launch(const Params& params, cudaStream_t stream);

}  // namespace attune::kernels::decode_plan::sm80
