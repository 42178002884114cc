#include "plan/chunk_stages.hpp"

#include <algorithm>

#include "attention/dual_chunk.hpp"
#include "base/math.hpp"

namespace attune::plan {
namespace {

/// One request more: `rows` query tokens over keys [begin, end) of a page table.
void add(const BatchView& batch, std::int64_t request, std::int64_t rows, attention::KeyRange keys,
         ChunkStage& stage) {
  const std::int64_t page_size = batch.page_size;
  const std::int64_t first = batch.kv_indptr[static_cast<std::size_t>(request)];
  const std::int64_t count = base::ceil_div(keys.end - keys.begin, page_size);
  const auto pages = batch.kv_indices.subspan(
      static_cast<std::size_t>(first + keys.begin / page_size), static_cast<std::size_t>(count));
  stage.qo_indptr.push_back(stage.qo_indptr.back() + static_cast<std::int32_t>(rows));
  stage.kv_indices.insert(stage.kv_indices.end(), pages.begin(), pages.end());
  stage.kv_indptr.push_back(static_cast<std::int32_t>(stage.kv_indices.size()));
  stage.kv_last_page_len.push_back(
      static_cast<std::int32_t>(count == 0 ? 0 : keys.end - keys.begin - (count - 1) * page_size));
}

}  // namespace

BatchView ChunkStage::view(BatchForm form, std::int32_t page_size) const {
  return {.form = form,
          .page_size = page_size,
          .qo_indptr = qo_indptr,
          .kv_indptr = kv_indptr,
          .kv_indices = kv_indices,
          .kv_last_page_len = kv_last_page_len};
}

void list_chunk_stages(const BatchView& batch, std::int64_t chunk_len, ChunkStages& stages) {
  stages.form = batch.form;
  for (ChunkStage& stage : stages.of) {
    stage.qo_indptr.assign(1, 0);
    stage.kv_indptr.assign(1, 0);
    stage.kv_indices.clear();
    stage.kv_last_page_len.clear();
  }
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t end = batch.kv_len(i);
    for (std::int64_t p = end - batch.qo_len(i); p < end;) {
      // Rows before position 0 see nothing.
      const std::int64_t border = p < 0 ? 0 : (p / chunk_len + 1) * chunk_len;
      const std::int64_t next = std::min(border, end);
      for (int query = 0; query < kDualChunkQueries; ++query) {
        // The last row of them meets all that any meets.
        const auto keys = attention::dual_chunk_range(query, chunk_len, next - 1);
        add(batch, i, next - p, keys, stages.of[static_cast<std::size_t>(query)]);
      }
      p = next;
    }
  }
}

BatchBounds chunk_stage_bounds(const BatchBounds& bounds, std::int64_t chunk_len) {
  // A request of n rows stands in at most n / chunk_len + 2 chunks.
  const std::int64_t chunks = bounds.max_qo_tokens / chunk_len + 2;
  BatchBounds stage = bounds;
  if (bounds.decode_only) return stage;
  stage.max_batch =
      std::min(bounds.max_qo_tokens, 2 * bounds.max_batch + bounds.max_qo_tokens / chunk_len);
  stage.max_kv_entries = chunks * bounds.max_kv_entries;
  return stage;
}

}  // namespace attune::plan
