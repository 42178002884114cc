#include "plan/prefill_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "attention/mask.hpp"

namespace attune::plan {
namespace {

struct Lengths {
  std::vector<std::int32_t> qo;
  std::vector<std::int32_t> kv;
};

/// A ragged batch and the arrays it points into.
struct Batch {
  explicit Batch(const Lengths& lengths) {
    for (std::int32_t n : lengths.qo) qo_indptr.push_back(qo_indptr.back() + n);
    for (std::int32_t n : lengths.kv) kv_indptr.push_back(kv_indptr.back() + n);
    view.form = BatchForm::extend;
    view.source = KvSource::ragged;
    view.qo_indptr = qo_indptr;
    view.kv_indptr = kv_indptr;
  }
  std::vector<std::int32_t> qo_indptr{0};
  std::vector<std::int32_t> kv_indptr{0};
  BatchView view;
};

const std::vector<Lengths> kBatches{
    {{1}, {1}},
    {{128}, {128}},
    {{127, 128, 129, 0, 1}, {127, 500, 129, 7, 4000}},
    {{5, 300}, {0, 50}},  // no keys at all; more queries than keys
    {{1000, 1, 1, 1}, {1000, 9, 17, 33}},
};

PrefillRules rules(std::int32_t tile_tokens, std::int32_t tile_heads, std::int32_t key_tile) {
  return {.tile_tokens = tile_tokens,
          .tile_heads = tile_heads,
          .key_tile = key_tile,
          .num_qo_heads = 8,
          .num_kv_heads = 2,
          .window_right = 0,
          .bytes_per_key = 512};
}

std::size_t request_of(const Batch& batch, std::int32_t token) {
  const auto next = std::upper_bound(batch.qo_indptr.begin(), batch.qo_indptr.end(), token);
  return static_cast<std::size_t>(next - batch.qo_indptr.begin()) - 1;
}

/// Every item, as a kernel finds it from its number.
std::vector<PrefillTile> items_of(const PrefillRules& r, const PrefillSchedule& schedule) {
  std::vector<PrefillTile> items;
  for (std::int32_t group = 0; group < schedule.heads; group += schedule.heads_together)
    for (const PrefillTile& tile : schedule.tiles)
      for (std::int32_t h = group; h < std::min(schedule.heads, group + schedule.heads_together);
           ++h) {
        items.push_back(tile);
        items.back().head = h * r.tile_heads;
      }
  return items;
}

std::vector<PrefillTile> items_of(const PrefillRules& r, const Batch& batch) {
  PrefillSchedule schedule;
  schedule_prefill(r, batch.view, schedule);
  const std::vector<PrefillTile> items = items_of(r, schedule);
  EXPECT_EQ(static_cast<std::int64_t>(items.size()), schedule.num_items());
  return items;
}

TEST(PrefillSchedule, CoversEveryRowOfEveryHeadOnce) {
  for (const Lengths& lengths : kBatches) {
    for (const auto& [tokens, heads] : {std::pair{128, 1}, std::pair{32, 4}, std::pair{192, 1}}) {
      const Batch batch(lengths);
      std::map<std::pair<std::int32_t, std::int32_t>, int> seen;
      for (const PrefillTile& t : items_of(rules(tokens, heads, 128), batch))
        for (std::int32_t r = 0; r < std::min(tokens, t.q_tokens); ++r)
          for (std::int32_t h = 0; h < heads; ++h) ++seen[{t.q_token + r, t.head + h}];
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(batch.qo_indptr.back()) * 8);
      for (const auto& [row, times] : seen) EXPECT_EQ(times, 1) << row.first << ' ' << row.second;
    }
  }
}

TEST(PrefillSchedule, TilesHoldEveryVisibleKeyAndNoIdleTileAtTheEnds) {
  for (const Lengths& lengths : kBatches) {
    for (const std::int64_t left : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{100}}) {
      for (const bool causal : {true, false}) {
        const Batch batch(lengths);
        PrefillRules r = rules(128, 1, 80);
        r.window_left = left;
        r.window_right = causal ? 0 : -1;
        for (const PrefillTile& t : items_of(r, batch)) {
          const std::size_t request = request_of(batch, t.q_token);
          EXPECT_EQ(t.kv_len, lengths.kv[request]);
          EXPECT_EQ(t.kv_start, batch.kv_indptr[request]);
          const attention::MaskRule mask{.causal = causal, .window_left = left};
          std::int64_t first = t.kv_len;
          std::int64_t last = 0;
          for (std::int32_t i = 0; i < std::min(128, t.q_tokens); ++i) {
            const auto keys = attention::visible_range(mask, t.q_position + i, 0, t.kv_len);
            if (keys.begin == keys.end) continue;
            first = std::min(first, keys.begin);
            last = std::max(last, keys.end);
          }
          ASSERT_LT(t.tile_begin, t.tile_end);
          if (first >= last) {
            EXPECT_EQ(t.tile_end - t.tile_begin, 1);
            continue;
          }
          EXPECT_EQ(t.tile_begin, first / 80);
          EXPECT_EQ(t.tile_end, (last + 79) / 80);
        }
      }
    }
  }
}

TEST(PrefillSchedule, LongestFirstWithinHeadsThatFitTheCache) {
  const Batch batch({{1000, 400}, {1000, 2000}});
  PrefillRules r = rules(128, 1, 128);
  r.cache_bytes = 3000 * 512;  // one KV head's keys and values
  const std::vector<PrefillTile> tiles = items_of(r, batch);
  ASSERT_EQ(tiles.size(), (8u + 4u) * 8u);
  for (std::size_t i = 1; i < tiles.size(); ++i) {
    const bool same_group = tiles[i].head / 4 == tiles[i - 1].head / 4;
    if (!same_group) {
      EXPECT_EQ(i, tiles.size() / 2);
      continue;
    }
    EXPECT_GE(tiles[i - 1].tile_end - tiles[i - 1].tile_begin,
              tiles[i].tile_end - tiles[i].tile_begin);
  }
}

TEST(PrefillSchedule, RequestsKeepTheirOrderAmongEquals) {
  const Batch batch({{40, 30, 40, 30}, {100, 300, 100, 300}});
  PrefillSchedule schedule;
  for (int again = 0; again < 2; ++again) {
    schedule_prefill(rules(64, 1, 128), batch.view, schedule);
    std::vector<std::int32_t> order;
    for (const PrefillTile& t : schedule.tiles) order.push_back(t.q_token);
    EXPECT_EQ(order, (std::vector<std::int32_t>{40, 110, 0, 70}));
  }
}

TEST(PrefillSchedule, GroupsOfHeadsMayNotDivideThem) {
  const Batch batch({{300, 100}, {300, 100}});
  PrefillRules r = rules(128, 1, 128);
  r.num_qo_heads = 10;
  r.num_kv_heads = 5;
  r.cache_bytes = 2 * 400 * 512;  // two KV heads
  PrefillSchedule schedule;
  schedule_prefill(r, batch.view, schedule);
  EXPECT_EQ(schedule.heads, 10);
  EXPECT_EQ(schedule.heads_together, 4);
  EXPECT_EQ(items_of(r, schedule).size(), (3u + 1u) * 10u);
}

TEST(PrefillSchedule, TheBoundHolds) {
  for (const Lengths& lengths : kBatches) {
    for (const auto& [tokens, heads] : {std::pair{128, 1}, std::pair{32, 4}, std::pair{192, 1}}) {
      const Batch batch(lengths);
      const PrefillRules r = rules(tokens, heads, 128);
      PrefillSchedule schedule;
      schedule_prefill(r, batch.view, schedule);
      EXPECT_LE(static_cast<std::int64_t>(schedule.tiles.size()),
                max_prefill_tiles(r, static_cast<std::int64_t>(lengths.qo.size()),
                                  batch.qo_indptr.back()));
    }
  }
}

void expect_counted(const PrefillRules& r, const Batch& batch) {
  PrefillSchedule schedule;
  schedule_prefill(r, batch.view, schedule);
  std::int64_t key_tiles = 0;
  std::int64_t longest = 0;
  std::int64_t shortest = schedule.tiles.empty() ? 0 : std::numeric_limits<std::int64_t>::max();
  for (const PrefillTile& t : schedule.tiles) {
    key_tiles += t.tile_end - t.tile_begin;
    shortest = std::min<std::int64_t>(shortest, t.tile_end - t.tile_begin);
    longest = std::max<std::int64_t>(longest, t.tile_end - t.tile_begin);
  }
  const PrefillCount count = count_prefill(r, batch.view);
  EXPECT_EQ(count.tiles, static_cast<std::int64_t>(schedule.tiles.size()));
  EXPECT_EQ(count.key_tiles, key_tiles);
  EXPECT_EQ(count.longest, longest);
  EXPECT_LE(count.shortest, shortest);
  const bool two_edges = r.window_left >= 0 && r.window_right >= 0;
  EXPECT_GE(count.shortest, two_edges ? shortest - 2 : shortest);
}

TEST(PrefillSchedule, CountsWhatItLists) {
  for (const Lengths& lengths : kBatches)
    for (const auto& [tokens, heads] : {std::pair{128, 1}, std::pair{48, 4}})
      expect_counted(rules(tokens, heads, 80), Batch(lengths));
}

TEST(PrefillSchedule, CountsLongRequestsWithoutWalkingThem) {
  for (const std::int32_t tokens : {192, 96, 48, 3, 1})
    for (const std::int32_t key_tile : {80, 64, 7})
      for (const std::int64_t left : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{333}})
        for (const std::int64_t right : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{50}})
          for (const auto& [qo, kv] :
               {std::pair{1000, 1000}, std::pair{997, 3001}, std::pair{1500, 611},
                std::pair{700, 0}, std::pair{500, 1}, std::pair{2, 900}}) {
            PrefillRules r = rules(tokens, 1, key_tile);
            r.window_left = left;
            r.window_right = right;
            SCOPED_TRACE(testing::Message() << tokens << ' ' << key_tile << ' ' << left << ' '
                                            << right << ' ' << qo << ' ' << kv);
            expect_counted(r, Batch({{qo}, {kv}}));
          }
}

}  // namespace
}  // namespace attune::plan
