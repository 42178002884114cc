#include "plan/level_work.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math.hpp"

namespace attune::plan {
namespace {

/// A part of fewer tiles costs more than it balances.
constexpr std::int64_t kLeastTiles = 4;
/// More rounds of the workers balance better, and make more states.
constexpr std::int64_t kMostRounds = 4;

std::int64_t blocks_of(const SharedLevel& level, const PrefillShape& shape) {
  return base::ceil_div<std::int64_t>(level.num_tokens * shape.gqa_group_size, shape.rows);
}

std::int64_t tiles_of(const SharedLevel& level, const PrefillShape& shape) {
  return base::ceil_div<std::int64_t>(level.keys.end - level.keys.begin, shape.key_tile);
}

/// Items of parts of `size` tiles.
std::int64_t count_items(const Cascade& cascade, const PrefillShape& shape, std::int64_t size) {
  std::int64_t items = 0;
  for (const SharedLevel& level : cascade.levels)
    items +=
        blocks_of(level, shape) * shape.num_kv_heads * base::ceil_div(tiles_of(level, shape), size);
  return items;
}

struct Cut {
  std::int64_t size = 0;  ///< tiles of a part
  std::int64_t time = 0;  ///< tiles that the busiest worker takes
};

/// The least time that whole rounds of the workers take.
Cut best_cut(const Cascade& cascade, const PrefillShape& shape) {
  std::int64_t longest = kLeastTiles;
  for (const SharedLevel& level : cascade.levels)
    longest = std::max(longest, tiles_of(level, shape));
  Cut best;
  for (std::int64_t rounds = 1; rounds <= kMostRounds; ++rounds) {
    std::int64_t low = kLeastTiles;
    std::int64_t high = longest;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (count_items(cascade, shape, middle) <= rounds * shape.workers)
        high = middle;
      else
        low = middle + 1;
    }
    const std::int64_t time =
        low * base::ceil_div<std::int64_t>(count_items(cascade, shape, low), shape.workers);
    if (best.size == 0 || time < best.time) best = {low, time};
  }
  return best;
}

}  // namespace

void list_token_rules(const BatchView& batch, const attention::MaskRule& rule,
                      std::int64_t xai_temperature_len, std::vector<attention::TokenRule>& rules) {
  rules.clear();
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t first = batch.first_kv_position(i);
    const std::int64_t end = first + batch.kv_len(i);
    for (std::int64_t p = end - batch.qo_len(i); p < end; ++p) {
      const attention::KeyRange keys = attention::visible_range(rule, p, first, end);
      attention::TokenRule token{.begin = static_cast<std::int32_t>(keys.begin - first),
                                 .end = static_cast<std::int32_t>(keys.end - first),
                                 .position = static_cast<std::int32_t>(p - first)};
      if (xai_temperature_len > 0 && p > xai_temperature_len)
        token.temperature = static_cast<float>(std::log2(static_cast<double>(p)) /
                                               std::log2(static_cast<double>(xai_temperature_len)));
      rules.push_back(token);
    }
  }
}

std::int64_t max_level_items(const PrefillShape& shape, std::int64_t tokens, std::int64_t levels) {
  const std::int64_t blocks =
      base::ceil_div<std::int64_t>(tokens * shape.gqa_group_size, shape.rows) + levels;
  return std::max(blocks,
                  base::ceil_div<std::int64_t>(kMostRounds * shape.workers, shape.num_kv_heads));
}

std::int64_t level_time(const Cascade& cascade, const PrefillShape& shape) {
  return best_cut(cascade, shape).time;
}

std::vector<LevelPlace> place_levels(const Cascade& cascade, const PrefillShape& shape,
                                     std::int64_t num_tokens, std::int64_t max_rows) {
  std::int64_t spare = max_rows - num_tokens;
  for (const SharedLevel& level : cascade.levels) spare -= level.num_tokens;
  const std::int64_t size = best_cut(cascade, shape).size;
  std::vector<LevelPlace> places;
  std::int64_t row = num_tokens;
  for (const SharedLevel& level : cascade.levels) {
    const std::int64_t more = std::min(base::ceil_div(tiles_of(level, shape), size) - 1,
                                       std::max<std::int64_t>(spare, 0) / level.num_tokens);
    places.push_back({.parts = static_cast<std::int32_t>(1 + more),
                      .first_row = static_cast<std::int32_t>(row)});
    row += (1 + more) * level.num_tokens;
    spare -= more * level.num_tokens;
  }
  return places;
}

void list_level_work(const BatchView& batch, const Cascade& cascade,
                     const std::vector<LevelPlace>& places, const PrefillShape& shape,
                     PrefillList& list) {
  std::vector<attention::PrefillItem> items;
  for (std::size_t l = 0; l < cascade.levels.size(); ++l) {
    const SharedLevel& level = cascade.levels[l];
    const std::int64_t tiles = tiles_of(level, shape);
    const std::int64_t rows = level.num_tokens * shape.gqa_group_size;
    for (std::int32_t part = 0; part < places[l].parts; ++part) {
      const auto edge = [&](std::int64_t k) {
        const std::int64_t tile = tiles * k / places[l].parts;
        return static_cast<std::int32_t>(
            std::min(level.keys.end, level.keys.begin + tile * shape.key_tile));
      };
      for (std::int64_t row = 0; row < rows; row += shape.rows) {
        attention::PrefillItem item;
        item.q_row = static_cast<std::int32_t>(level.first_token);
        item.qo_len = static_cast<std::int32_t>(level.num_tokens);
        item.kv_len = static_cast<std::int32_t>(level.keys.end);
        // The first request's pages are everybody's.
        item.entry_begin = batch.kv_indptr[static_cast<std::size_t>(level.first_request)];
        item.row_begin = static_cast<std::int32_t>(row);
        item.kv_begin = edge(part);
        item.kv_end = edge(part + 1);
        item.o_row = places[l].first_row + part * item.qo_len;
        item.shared = 1;
        items.push_back(item);
      }
    }
  }
  list.items.insert(list.items.begin(), items.begin(), items.end());
  std::stable_sort(list.items.begin(), list.items.end(), [](const auto& a, const auto& b) {
    return a.kv_end - a.kv_begin > b.kv_end - b.kv_begin;
  });
  list.work.num_items = static_cast<std::int32_t>(list.items.size());
}

void list_level_tiles(const BatchView& batch, const Cascade& cascade,
                      const std::vector<LevelPlace>& places, const PrefillShape& shape,
                      std::vector<PrefillTile>& tiles) {
  tiles.clear();
  const auto tokens_a_tile = static_cast<std::int32_t>(shape.rows / shape.gqa_group_size);
  for (std::size_t l = 0; l < cascade.levels.size(); ++l) {
    const SharedLevel& level = cascade.levels[l];
    const auto tokens = static_cast<std::int32_t>(level.num_tokens);
    const auto first = static_cast<std::size_t>(level.first_request);
    PrefillTile tile;
    tile.kv_start =
        batch.kv_indptr[first] + static_cast<std::int32_t>(level.keys.begin / batch.page_size);
    tile.kv_len = static_cast<std::int32_t>(level.keys.end - level.keys.begin);
    for (std::int64_t part = 0; part < places[l].parts; ++part) {
      const auto edge = [&](std::int64_t k) {
        return static_cast<std::int32_t>(tiles_of(level, shape) * k / places[l].parts);
      };
      tile.tile_begin = edge(part);
      tile.tile_end = edge(part + 1);
      for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
        tile.head = head * shape.gqa_group_size;
        for (std::int32_t t = 0; t < tokens; t += tokens_a_tile) {
          tile.q_token = static_cast<std::int32_t>(level.first_token) + t;
          tile.q_tokens = tokens - t;
          tile.o_token = places[l].first_row + static_cast<std::int32_t>(part) * tokens + t;
          tiles.push_back(tile);
        }
      }
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(), [](const PrefillTile& a, const PrefillTile& b) {
    return a.tile_end - a.tile_begin > b.tile_end - b.tile_begin;
  });
}

bool levels_are_open(const Cascade& cascade, const std::vector<attention::TokenRule>& rules) {
  for (const SharedLevel& level : cascade.levels)
    for (std::int64_t t = level.first_token; t < level.first_token + level.num_tokens; ++t) {
      const attention::TokenRule& rule = rules[static_cast<std::size_t>(t)];
      if (rule.begin > level.keys.begin || rule.end < level.keys.end) return false;
    }
  return true;
}

void list_states(const BatchView& batch, const Cascade& cascade,
                 const std::vector<LevelPlace>& places, StateList& list) {
  list.first.assign(1, 0);
  list.rows.clear();
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    for (std::int64_t t = batch.qo_indptr[static_cast<std::size_t>(i)];
         t < batch.qo_indptr[static_cast<std::size_t>(i) + 1]; ++t) {
      list.rows.push_back(static_cast<std::int32_t>(t));
      for (std::int32_t l = cascade.level_of(i); l >= 0;) {
        const auto at = static_cast<std::size_t>(l);
        const SharedLevel& level = cascade.levels[at];
        for (std::int32_t part = 0; part < places[at].parts; ++part)
          list.rows.push_back(
              places[at].first_row +
              static_cast<std::int32_t>(part * level.num_tokens + t - level.first_token));
        l = level.outer;
      }
      list.first.push_back(static_cast<std::int32_t>(list.rows.size()));
    }
  }
}

}  // namespace attune::plan
