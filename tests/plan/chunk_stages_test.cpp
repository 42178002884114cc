#include "plan/chunk_stages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include <attune/validate.hpp>

#include "plan/paged_batch.hpp"

namespace attune::plan {
namespace {

using Ints = std::vector<std::int32_t>;

struct Batch : PagedBatch {
  Batch(const std::vector<std::pair<std::int32_t, std::int32_t>>& requests, std::int32_t page_size)
      : PagedBatch(BatchForm::extend, page_size, requests, 100) {}
};

TEST(ChunkStages, RowsOfTwoChunks) {
  const Batch batch({{4, 66}}, 16);
  ChunkStages s;
  list_chunk_stages(batch.view, 32, s);
  for (const ChunkStage& stage : s.of) EXPECT_EQ(stage.qo_indptr, (Ints{0, 2, 4}));
  EXPECT_EQ(s.of[0].kv_indices, (Ints{2, 3, 4}));
  EXPECT_EQ(s.of[0].kv_indptr, (Ints{0, 2, 3}));
  EXPECT_EQ(s.of[0].kv_last_page_len, (Ints{16, 2}));
  EXPECT_EQ(s.of[1].kv_indices, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(s.of[1].kv_indptr, (Ints{0, 2, 4}));
  EXPECT_EQ(s.of[2].kv_indices, (Ints{0, 1}));
  EXPECT_EQ(s.of[2].kv_indptr, (Ints{0, 0, 2}));
  EXPECT_EQ(s.of[2].kv_last_page_len, (Ints{0, 16}));
}

TEST(ChunkStages, EveryRowAndEveryKeyOnce) {
  const AttentionSpec spec{.variant = Variant::gqa};
  const std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> batches{
      {{1, 1}, {0, 9}, {3, 0}, {5, 3}, {70, 131}, {33, 33}},
      {{200, 200}, {1, 96}, {1, 97}, {64, 64}},
      {{1, 0}},
      {}};
  for (const auto& requests : batches)
    for (const std::int32_t page_size : {1, 8, 32})
      for (const std::int64_t chunk_len : {32, 64, 4096}) {
        const Batch batch(requests, page_size);
        ChunkStages s;
        list_chunk_stages(batch.view, chunk_len, s);
        const BatchBounds most = chunk_stage_bounds(attention::bounds_of(batch.view), chunk_len);
        std::vector<std::int64_t> met(kDualChunkQueries);
        for (std::size_t query = 0; query < s.of.size(); ++query) {
          const BatchView view = s.of[query].view(BatchForm::extend, page_size);
          EXPECT_TRUE(attention::validate_batch(view, spec, page_size).ok());
          EXPECT_EQ(view.num_qo_tokens(), batch.view.num_qo_tokens());
          const BatchBounds need = attention::bounds_of(view);
          EXPECT_LE(need.max_batch, most.max_batch);
          EXPECT_LE(need.max_kv_entries, most.max_kv_entries);
          EXPECT_LE(need.max_kv_len, most.max_kv_len);
          for (std::int64_t i = 0; i < view.batch_size(); ++i)
            for (std::int64_t r = 0; r < view.qo_len(i); ++r)
              met[query] += query == 0
                                ? std::max<std::int64_t>(view.kv_len(i) - view.qo_len(i) + r + 1, 0)
                                : view.kv_len(i);
        }
        std::int64_t seen = 0;
        for (const auto& [rows, keys] : requests)
          for (int r = 0; r < rows; ++r) seen += std::max(keys - rows + r + 1, 0);
        EXPECT_EQ(std::accumulate(met.begin(), met.end(), std::int64_t{0}), seen);
      }
}

}  // namespace
}  // namespace attune::plan
