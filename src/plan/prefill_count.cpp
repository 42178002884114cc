// What a prefill batch costs, from each request's first and last tiles: the ends of what its tiles
// see are arithmetic progressions, and the remainders of one by a key tile repeat.
#include <algorithm>
#include <numeric>

#include "plan/prefill_tiles.hpp"

namespace attune::plan {
namespace {

/// Of floor((first + step i) / divisor): remainders repeat after `period` terms, having passed each
/// multiple of `common` once. In 32 bits, because divisions are what a count costs.
struct Cycle {
  std::uint32_t divisor;
  std::uint32_t step;
  std::uint32_t common;
  std::uint32_t period;
  Cycle(std::int32_t by, std::int32_t a_term)
      : divisor(static_cast<std::uint32_t>(by)),
        step(static_cast<std::uint32_t>(a_term)),
        common(std::gcd(divisor, step)),
        period(divisor / common) {}
};

/// Sum over i in [0, n).
std::int64_t sum_of_quotients(const Cycle& cycle, std::uint32_t first, std::uint32_t n) {
  const std::uint32_t cycles = n / cycle.period;
  const std::uint32_t whole = cycles * cycle.period;
  std::int64_t sum = 0;
  if (whole > 0) {
    // Terms without their remainders: over a cycle those are first % common and every multiple of
    // `common` above it.
    const std::uint64_t remainders =
        std::uint64_t{cycle.period} * (first % cycle.common) +
        cycle.common * (std::uint64_t{cycle.period} * (cycle.period - 1) / 2);
    const std::uint64_t terms =
        std::uint64_t{whole} * first + cycle.step * (std::uint64_t{whole} * (whole - 1) / 2);
    sum = static_cast<std::int64_t>((terms - cycles * remainders) / cycle.divisor);
  }
  for (std::uint32_t i = whole; i < n; ++i) sum += (first + cycle.step * i) / cycle.divisor;
  return sum;
}

/// Sum of floor(clamp(first + step i, 0, most) / divisor) for i in [0, n).
std::int64_t sum_of_clamped(const Cycle& cycle, std::int32_t first, std::int32_t n,
                            std::int32_t most) {
  const auto step = static_cast<std::int32_t>(cycle.step);
  const std::int32_t from = first >= 0 ? 0 : std::min(n, base::ceil_div(-first, step));
  // Almost always the last term alone is too large.
  std::int32_t to = n;
  if (first + std::int64_t{step} * (n - 1) > most)
    to = most < first ? from : std::clamp((most - first) / step + 1, from, n);
  return sum_of_quotients(cycle, static_cast<std::uint32_t>(first + step * from),
                          static_cast<std::uint32_t>(to - from)) +
         (n == to ? 0 : std::int64_t{n - to} * (most / static_cast<std::int32_t>(cycle.divisor)));
}

/// A window edge that is farther away than any key changes nothing.
std::int32_t edge(std::int64_t window) {
  return static_cast<std::int32_t>(std::min<std::int64_t>(window, std::int64_t{1} << 29));
}

/// Key tiles of all of a request's tiles.
std::int64_t key_tiles_of(const PrefillRules& rules, const Cycle& cycle,
                          const PrefillRequest& request, std::int32_t tiles) {
  if (request.kv_len == 0) return tiles;
  const std::int32_t position = request.kv_len - request.qo_len;
  // ceil(x / d) = floor((x + d - 1) / d)
  const std::int32_t up = rules.key_tile - 1;
  std::int64_t ends = 0;
  if (rules.window_right < 0) {
    ends = std::int64_t{tiles} * ((request.kv_len + up) / rules.key_tile);
  } else {
    // Tiles that see no key stand before the others: one key tile each. The last tile may end
    // early, but no later than kv_len.
    const std::int32_t end = position + rules.tile_tokens + edge(rules.window_right);
    const std::int32_t blind = end > 0 ? 0 : std::min(tiles, -end / rules.tile_tokens + 1);
    ends = blind + sum_of_clamped(cycle, end + rules.tile_tokens * blind + up, tiles - blind,
                                  request.kv_len + up);
  }
  if (rules.window_left < 0) return ends;
  return ends - sum_of_clamped(cycle, position - edge(rules.window_left), tiles, request.kv_len);
}

std::int32_t longest_of(const PrefillRules& rules, const Cycle& cycle,
                        const PrefillRequest& request, std::int32_t tiles) {
  if (rules.window_right < 0) return request.tile(rules, 0).length();
  if (rules.window_left < 0) return request.tile(rules, tiles - 1).length();
  // Tiles grow until the window's left edge passes the first key. From there on lengths repeat,
  // but for the last tiles', which the last key ends.
  std::int32_t longest = 0;
  const std::int32_t cut_short = 1 + base::ceil_div(edge(rules.window_right), rules.tile_tokens);
  const std::int32_t from = tiles - static_cast<std::int32_t>(cycle.period) - cut_short;
  for (std::int32_t i = std::max(0, from); i < tiles; ++i)
    longest = std::max(longest, request.tile(rules, i).length());
  return longest;
}

/// No tile has fewer key tiles. Between two window edges lengths differ by one, as they lie on the
/// key tiles, but for the first tiles' and the last one's.
std::int32_t shortest_of(const PrefillRules& rules, const PrefillRequest& request,
                         std::int32_t tiles) {
  if (rules.window_left < 0) return request.tile(rules, 0).length();
  const std::int32_t last = request.tile(rules, tiles - 1).length();
  if (rules.window_right < 0) return last;
  return std::max(0, std::min(request.tile(rules, 0).length(), last) - 1);
}

}  // namespace

PrefillCount count_prefill(const PrefillRules& rules, const BatchView& batch) {
  const Cycle cycle(rules.key_tile, rules.tile_tokens);
  PrefillCount count;
  for_each_request(rules, batch, [&](const PrefillRequest& request) {
    const std::int32_t tiles = request.num_tiles(rules);
    const std::int32_t one = tiles == 1 ? request.tile(rules, 0).length() : 0;
    const std::int32_t longest = tiles == 1 ? one : longest_of(rules, cycle, request, tiles);
    const std::int32_t shortest = tiles == 1 ? one : shortest_of(rules, request, tiles);
    count.shortest = count.tiles == 0 ? shortest : std::min<std::int64_t>(count.shortest, shortest);
    count.longest = std::max<std::int64_t>(count.longest, longest);
    count.tiles += tiles;
    count.key_tiles += tiles == 1 ? one : key_tiles_of(rules, cycle, request, tiles);
  });
  return count;
}

}  // namespace attune::plan
