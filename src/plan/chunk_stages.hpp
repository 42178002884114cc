// A batch of dual chunk attention as three batches of plain attention (layer plan): one for each of
// a head's queries, over the same rows, whose states are joined by their lse. Kernels of plain
// attention then serve it.
//
// Rows of a request that stand in one chunk become a request of their own, whose page table is the
// slice of whole pages that holds the keys they meet. Chunks of 32 positions, pages of 16, four
// rows from position 62 on of one request with pages a b c d e:
//
//   rows        query 0, causal     query 1, all keys     query 2, all keys
//   62, 63      c d   32 keys       a b   32 keys         none
//   64, 65      e      2 keys       c d   32 keys         a b   32 keys
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <attune/batch.hpp>
#include <attune/spec.hpp>

namespace attune::plan {

/// Arrays of one such batch.
struct ChunkStage {
  std::vector<std::int32_t> qo_indptr, kv_indptr, kv_indices, kv_last_page_len;

  [[nodiscard]] BatchView view(BatchForm form, std::int32_t page_size) const;
};

struct ChunkStages {
  std::array<ChunkStage, kDualChunkQueries> of;
  BatchForm form = BatchForm::idle;
};

/// Of a checked batch of paged keys; `page_size` divides `chunk_len`.
void list_chunk_stages(const BatchView& batch, std::int64_t chunk_len, ChunkStages& stages);

/// What holds every stage of a batch within `bounds`.
[[nodiscard]] BatchBounds chunk_stage_bounds(const BatchBounds& bounds, std::int64_t chunk_len);

}  // namespace attune::plan
