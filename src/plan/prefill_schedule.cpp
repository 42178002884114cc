#include "plan/prefill_schedule.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace attune::plan {
namespace {

/// Calls f(tile) with the tiles of one head of every request.
template <class F>
void for_each_tile(const PrefillRules& rules, const BatchView& batch, F&& f) {
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const auto n = static_cast<std::size_t>(i);
    const std::int64_t qo_len = batch.qo_len(i);
    if (qo_len == 1 && !rules.decodes_too) continue;
    const std::int64_t kv_len = batch.kv_len(i);
    for (std::int64_t first = 0; first < qo_len; first += rules.tile_tokens) {
      const std::int64_t position = kv_len - qo_len + first;
      const std::int64_t last =
          position + std::min<std::int64_t>(rules.tile_tokens, qo_len - first) - 1;
      std::int64_t begin = 0;
      std::int64_t end = kv_len;
      if (rules.window_left >= 0)
        begin = std::clamp<std::int64_t>(position - rules.window_left, 0, kv_len);
      if (rules.window_right >= 0) end = std::min(end, last + 1 + rules.window_right);
      const std::int64_t tile_begin = begin / rules.key_tile;
      const std::int64_t tile_end =
          end > begin ? base::ceil_div<std::int64_t>(end, rules.key_tile) : 0;
      f(PrefillTile{.q_token = batch.qo_indptr[n] + static_cast<std::int32_t>(first),
                    .q_tokens = static_cast<std::int32_t>(qo_len - first),
                    .q_position = static_cast<std::int32_t>(position),
                    .head = 0,
                    .kv_start = batch.kv_indptr[n],
                    .kv_len = static_cast<std::int32_t>(kv_len),
                    .tile_begin = static_cast<std::int32_t>(tile_begin),
                    // A tile that sees no key still writes its empty rows: one key tile, all
                    // masked.
                    .tile_end = static_cast<std::int32_t>(std::max(tile_end, tile_begin + 1))});
    }
  }
}

/// The tiles of one head of every request, longest first; requests in their order among equals.
void tiles_of_one_head(const PrefillRules& rules, const BatchView& batch,
                       std::vector<PrefillTile>& tiles) {
  tiles.clear();
  for_each_tile(rules, batch, [&](const PrefillTile& tile) { tiles.push_back(tile); });
  std::stable_sort(tiles.begin(), tiles.end(), [](const PrefillTile& a, const PrefillTile& b) {
    return a.tile_end - a.tile_begin > b.tile_end - b.tile_begin;
  });
}

}  // namespace

std::int64_t max_prefill_tiles(const PrefillRules& rules, std::int64_t batch, std::int64_t tokens) {
  // Every request may end in a tile that is not full.
  const std::int64_t per_head =
      std::min(tokens, tokens / rules.tile_tokens + std::min(batch, tokens));
  return per_head * (rules.num_qo_heads / rules.tile_heads);
}

PrefillCount count_prefill(const PrefillRules& rules, const BatchView& batch) {
  PrefillCount count;
  for_each_tile(rules, batch, [&](const PrefillTile& tile) {
    const std::int64_t key_tiles = tile.tile_end - tile.tile_begin;
    ++count.tiles;
    count.key_tiles += key_tiles;
    count.longest = std::max(count.longest, key_tiles);
  });
  const std::int64_t heads = rules.num_qo_heads / rules.tile_heads;
  count.tiles *= heads;
  count.key_tiles *= heads;
  return count;
}

void schedule_prefill(const PrefillRules& rules, const BatchView& batch,
                      std::vector<PrefillTile>& tiles) {
  std::vector<PrefillTile> one_head;
  tiles_of_one_head(rules, batch, one_head);

  std::int64_t keys = 0;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) keys += batch.kv_len(i);
  const std::int64_t bytes_per_head = std::max<std::int64_t>(1, keys * rules.bytes_per_key);
  const auto heads_together = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(rules.cache_bytes / bytes_per_head, 1, rules.num_kv_heads));
  const std::int32_t group = rules.num_qo_heads / rules.num_kv_heads;

  tiles.clear();
  tiles.reserve(one_head.size() * static_cast<std::size_t>(rules.num_qo_heads / rules.tile_heads));
  for (std::int32_t kv_head = 0; kv_head < rules.num_kv_heads; kv_head += heads_together) {
    const std::int32_t end = std::min(kv_head + heads_together, rules.num_kv_heads) * group;
    for (const PrefillTile& tile : one_head)
      for (std::int32_t head = kv_head * group; head < end; head += rules.tile_heads) {
        tiles.push_back(tile);
        tiles.back().head = head;
      }
  }
}

}  // namespace attune::plan
