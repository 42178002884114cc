#include "plan/decode_work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/paged_batch.hpp"

namespace attune::plan {
namespace {

struct Lengths : PagedBatch {
  Lengths(const std::vector<std::int32_t>& kv_lens, std::int32_t page_size)
      : PagedBatch(BatchForm::decode, page_size, each_with(1, kv_lens), 0) {}
};

attention::CutRule rule_of(int workers, int units, int requests, int max_parts, int min_tiles,
                           int even_tiles) {
  return {.workers = workers,
          .units = units,
          .max_chunks = requests + max_parts,
          .max_parts = max_parts,
          .min_tiles = min_tiles,
          .even_tiles = even_tiles,
          .least_even_tiles = min_tiles};
}

/// Every tile of every request is in exactly one chunk, parts are numbered in order, and places of
/// different requests do not meet.
void expect_exact_cover(const std::vector<int>& kv_lens, const attention::CutRule& rule) {
  Lengths lengths(kv_lens, 16);
  DecodeList list;
  list_decode_work(lengths.view, {}, rule, 16, {}, list);
  ASSERT_LE(list.work.num_chunks, rule.max_chunks);
  EXPECT_EQ(list.work.num_items, list.work.num_chunks * rule.units);
  std::vector<attention::CutState> seen(list.requests.size());
  for (int i = 0; i < list.work.num_chunks; ++i) {
    const auto& chunk = list.chunks[static_cast<std::size_t>(i)];
    auto& mine = seen[static_cast<std::size_t>(chunk.request.q_row)];
    EXPECT_EQ(chunk.tile_begin, mine.at);
    EXPECT_GT(chunk.tile_end, chunk.tile_begin);
    EXPECT_EQ(chunk.part, mine.part);
    if (chunk.part > 0) {
      EXPECT_EQ(chunk.parts, mine.parts);
      EXPECT_EQ(chunk.first_place, mine.first_place);
    }
    mine = {.at = chunk.tile_end,
            .part = chunk.part + 1,
            .parts = chunk.parts,
            .first_place = chunk.first_place};
  }
  int places = 0;
  for (std::size_t r = 0; r < seen.size(); ++r) {
    EXPECT_EQ(seen[r].at, attention::tiles_of(list.requests[r], base::FastDivisor(16)));
    EXPECT_EQ(seen[r].part, seen[r].parts);
    if (seen[r].parts == 1) continue;
    EXPECT_EQ(seen[r].first_place, places);
    places += seen[r].parts;
  }
  EXPECT_LE(places, rule.max_parts);
}

TEST(DecodeWork, EveryTileIsTakenOnce) {
  for (int workers : {1, 7, 132, 264})
    for (int units : {1, 3, 8, 71})
      for (int min_tiles : {1, 16})
        for (int max_parts : {0, 1, 2, 5, 200})
          for (int even : {0, 1000}) {
            const auto check = [&](const std::vector<int>& lens) {
              expect_exact_cover(lens, rule_of(workers, units, static_cast<int>(lens.size()),
                                               max_parts, min_tiles, even));
            };
            check({0});
            check({1, 0, 15, 16, 17, 0});
            check({1, 2, 100000, 3, 0, 4});
            check(std::vector<int>(64, 8192));
            check(std::vector<int>(257, 33));
          }
}

TEST(DecodeWork, OneWaveWhereWorkIsShort) {
  Lengths lengths({32768}, 64);
  DecodeList list;
  list_decode_work(lengths.view, {}, rule_of(132, 8, 1, 132, 8, 128), 16, {}, list);
  EXPECT_EQ(list.work.num_items, 128);  // 16 chunks of 128 tiles
}

TEST(DecodeWork, ChunksShrinkTowardsTheEnd) {
  for (const auto& lens : {std::vector<int>(64, 8192), std::vector<int>(256, 1024),
                           std::vector<int>(16, 32768), std::vector<int>{1024, 1024, 131072}}) {
    Lengths lengths(lens, 64);
    DecodeList list;
    const auto requests = static_cast<int>(lens.size());
    list_decode_work(lengths.view, {}, rule_of(132, 8, requests, 264, 32, 0), 16, {}, list);
    int shortest = 1 << 30;
    int longest = 0;
    for (int i = 0; i < list.work.num_chunks; ++i) {
      const auto& c = list.chunks[static_cast<std::size_t>(i)];
      shortest = std::min(shortest, c.tile_end - c.tile_begin);
      longest = std::max(longest, c.tile_end - c.tile_begin);
    }
    const auto& end = list.chunks[static_cast<std::size_t>(list.work.num_chunks - 1)];
    EXPECT_LE(end.tile_end - end.tile_begin, shortest + 1);
    EXPECT_LE(shortest, 64);
    EXPECT_GE(longest, 64);
  }
}

TEST(DecodeWork, WindowsNarrowTheWalk) {
  Lengths lengths({1000}, 16);
  DecodeList list;
  list_decode_work(lengths.view, {.mask = {.causal = true, .window_left = 127}},
                   rule_of(1, 1, 1, 0, 1, 0), 16, {}, list);
  EXPECT_EQ(list.requests[0].kv_begin, 872);
  EXPECT_EQ(list.requests[0].kv_end, 1000);
  EXPECT_EQ(attention::tiles_of(list.requests[0], base::FastDivisor(16)), 9);  // tiles 54 … 62
}

TEST(DecodeWork, UnitsCoverTheHeads) {
  for (int heads : {1, 2, 3, 8, 9, 64, 71})
    for (int group : {1, 4, 8, 9, 16, 71})
      for (int together : {1, 2, 4}) {
        const DecodeShape s = decode_shape(heads, group, 8, together);
        EXPECT_EQ(s.units * s.heads_per_cta, heads * s.row_blocks);
        EXPECT_GE(s.row_blocks * 8, group);
      }
}

}  // namespace
}  // namespace attune::plan
