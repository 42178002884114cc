// How prefill work is cut on a GPU, as planner and kernel share it (layer attention; a kernel may
// include it). Rows are (query token, query head of one KV head), token-major: a GQA group's heads
// share their keys in one block of rows.
#pragma once

#include <cstdint>

namespace attune::attention {

/// One block of rows of one request against a range of its keys; every KV head does it once.
struct PrefillItem {
  std::int32_t q_row = 0;  ///< of the request's first query token
  std::int32_t qo_len = 0;
  std::int32_t kv_len = 0;
  std::int32_t entry_begin = 0;  ///< its first entry in kv_indices (ragged: its first token)
  std::int32_t row_begin = 0;    ///< the block's first row
  std::int32_t kv_begin = 0;     ///< keys of this item, a multiple of the key tile, …
  std::int32_t kv_end = 0;       ///< … up to here
  std::int32_t part = 0;         ///< which part of the block's keys this is
  std::int32_t parts = 1;
  std::int32_t first_place =
      0;  ///< part i of KV head h is kept at place (first_place + i) * heads + h
  std::int64_t first_position = 0;  ///< of the page table's first key
  std::int64_t mask_begin = -1;     ///< first byte of the request's packed mask; -1 = none
  std::int64_t reserved = 0;
};
static_assert(sizeof(PrefillItem) == 64, "four vector loads");

/// In front of the items.
struct PrefillWork {
  std::int32_t num_items = 0;
  std::int32_t reserved[3] = {0, 0, 0};
};

}  // namespace attune::attention
