// One request of a prefill batch as tiles of query rows against ranges of key tiles: one by one, or
// counted without walking them (layer plan).
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/batch.hpp>

#include "base/math.hpp"
#include "plan/prefill_schedule.hpp"

namespace attune::plan {

struct PrefillRequest {
  std::int32_t q_token = 0;
  std::int32_t qo_len = 0;
  std::int32_t kv_start = 0;
  std::int32_t kv_len = 0;

  [[nodiscard]] std::int32_t num_tiles(const PrefillRules& rules) const {
    if (qo_len <= rules.tile_tokens) return 1;
    return base::ceil_div(qo_len, rules.tile_tokens);
  }

  struct Tile {
    std::int32_t first;  ///< query token
    std::int32_t begin;  ///< key tiles [begin, end)
    std::int32_t end;
    [[nodiscard]] std::int32_t length() const { return end - begin; }
  };
  /// A tile that sees no key still writes its empty rows: one key tile, all masked.
  [[nodiscard]] Tile tile(const PrefillRules& rules, std::int32_t number) const {
    const auto key_tile = static_cast<std::uint32_t>(rules.key_tile);
    const std::int32_t first = number * rules.tile_tokens;
    const std::int64_t position = std::int64_t{kv_len} - qo_len + first;
    std::int64_t begin = 0;
    std::int64_t end = kv_len;
    if (rules.window_left >= 0)
      begin = std::clamp<std::int64_t>(position - rules.window_left, 0, kv_len);
    if (rules.window_right >= 0)
      end = std::min(end,
                     position + std::min(rules.tile_tokens, qo_len - first) + rules.window_right);
    const auto tile_begin =
        begin == 0 ? 0 : static_cast<std::int32_t>(static_cast<std::uint32_t>(begin) / key_tile);
    if (end <= begin) return {first, tile_begin, tile_begin + 1};
    return {first, tile_begin,
            static_cast<std::int32_t>((static_cast<std::uint32_t>(end) + key_tile - 1) / key_tile)};
  }
};

/// Calls f with the requests whose rows are tiles.
template <class F>
void for_each_request(const PrefillRules& rules, const BatchView& batch, F&& f) {
  const std::int64_t n = batch.batch_size();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t qo_len = batch.qo_len(i);
    if (qo_len == 0 || (qo_len == 1 && !rules.decodes_too)) continue;
    f(PrefillRequest{.q_token = batch.qo_indptr[static_cast<std::size_t>(i)],
                     .qo_len = static_cast<std::int32_t>(qo_len),
                     .kv_start = batch.kv_indptr[static_cast<std::size_t>(i)],
                     .kv_len = static_cast<std::int32_t>(batch.kv_len(i))});
  }
}

}  // namespace attune::plan
