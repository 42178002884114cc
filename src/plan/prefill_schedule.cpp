#include "plan/prefill_schedule.hpp"

#include <algorithm>

#include "plan/prefill_tiles.hpp"

namespace attune::plan {

std::int64_t max_prefill_tiles(const PrefillRules& rules, std::int64_t batch, std::int64_t tokens) {
  // Every request may end in a tile that is not full.
  return std::min(tokens, tokens / rules.tile_tokens + std::min(batch, tokens));
}

/// A sort by counting: lengths are small numbers. Requests keep their order among equals.
void schedule_prefill(const PrefillRules& rules, const BatchView& batch,
                      PrefillSchedule& schedule) {
  std::vector<std::int32_t>& starts = schedule.starts;
  std::int64_t keys = 0;
  std::int32_t tiles = 0;
  starts.clear();
  for_each_request(rules, batch, [&](const PrefillRequest& request) {
    keys += request.kv_len;
    const std::int32_t own = request.num_tiles(rules);
    tiles += own;
    // Room for the lengths of this request's tiles: 1 … all key tiles.
    const auto room = static_cast<std::size_t>(request.kv_len / rules.key_tile + 3);
    if (starts.size() < room) starts.resize(room);
    for (std::int32_t i = 0; i < own; ++i)
      ++starts[static_cast<std::size_t>(request.tile(rules, i).length())];
  });
  std::int32_t before = 0;
  for (std::size_t length = starts.size(); length-- > 0;) {
    const std::int32_t count = starts[length];
    starts[length] = before;
    before += count;
  }
  schedule.tiles.resize(static_cast<std::size_t>(tiles));
  for_each_request(rules, batch, [&](const PrefillRequest& request) {
    for (std::int32_t i = 0; i < request.num_tiles(rules); ++i) {
      const PrefillRequest::Tile tile = request.tile(rules, i);
      const std::int32_t place = starts[static_cast<std::size_t>(tile.length())]++;
      schedule.tiles[static_cast<std::size_t>(place)] = {
          .q_token = request.q_token + tile.first,
          .q_tokens = request.qo_len - tile.first,
          .q_position = request.kv_len - request.qo_len + tile.first,
          .kv_start = request.kv_start,
          .kv_len = request.kv_len,
          .tile_begin = tile.begin,
          .tile_end = tile.end};
    }
  });

  const std::int64_t bytes_per_head = std::max<std::int64_t>(1, keys * rules.bytes_per_key);
  const auto kv_heads_together = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(rules.cache_bytes / bytes_per_head, 1, rules.num_kv_heads));
  schedule.heads = rules.num_qo_heads / rules.tile_heads;
  schedule.heads_together =
      rules.num_qo_heads / rules.num_kv_heads * kv_heads_together / rules.tile_heads;
}

}  // namespace attune::plan
