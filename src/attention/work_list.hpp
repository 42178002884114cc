// How decode work is cut, as planner and kernel share it (layer attention; a kernel may include
// it).
//
// A row is one request and one unit of KV heads; it is `tiles` KV tiles long. Requests are cut into
// chunks, the same for all units, so an item of work is (chunk, unit): item = chunk * units + unit.
// CTAs take items in order: the first two by their own number, later ones from a counter, because
// SMs do not read memory equally fast (on an H200 the fastest tenth finishes equal shares in three
// quarters of the time of the slowest). Chunks therefore come in levels, each of half the size of
// the one before and with half of the work that is left: factoring (Hummel, Schonberg and Flynn,
// CACM 1992). Where a request is cut, its parts meet in the workspace and the last to arrive joins
// them in order: who computed a part changes no bit.
#pragma once

#include <cstdint>

#include "attention/mask.hpp"
#include "base/fast_divisor.hpp"

namespace attune::attention {

/// One decode request as the kernel reads it; token numbers count from the page table's first slot.
struct DecodeRequest {
  std::int32_t q_row = 0;        ///< row of q, o and lse
  std::int32_t entry_begin = 0;  ///< its first entry in kv_indices (ragged: its first token)
  std::int32_t kv_begin = 0;     ///< visible keys: [kv_begin, kv_end)
  std::int32_t kv_end = 0;
  std::int32_t query_pos = 0;  ///< of the query, counted as the tokens are
  float temperature = 1.0f;    ///< factor of the logits (AttentionSpec::xai_temperature_len)
};

/// The request of one query, the last of `kv_len` keys, the first of which is at position `first`.
[[nodiscard]] constexpr DecodeRequest decode_request(const MaskRule& mask, std::int32_t q_row,
                                                     std::int32_t entry_begin, std::int64_t kv_len,
                                                     std::int64_t first) {
  const KeyRange keys = visible_range(mask, first + kv_len - 1, first, first + kv_len);
  return {.q_row = q_row,
          .entry_begin = entry_begin,
          .kv_begin = static_cast<std::int32_t>(keys.begin - first),
          .kv_end = static_cast<std::int32_t>(keys.end - first),
          .query_pos = static_cast<std::int32_t>(kv_len - 1)};
}

/// Tiles of a row, counted from the one that holds kv_begin: tiles start at multiples of their
/// length. An empty row still has one.
[[nodiscard]] constexpr std::int32_t tiles_of(const DecodeRequest& r,
                                              const base::FastDivisor& tile) {
  const auto begin = divide(static_cast<std::uint32_t>(r.kv_begin), tile);
  const auto end = divide(static_cast<std::uint32_t>(r.kv_end) + tile.divisor - 1, tile);
  const auto n = static_cast<std::int32_t>(end - begin);
  return n < 1 ? 1 : n;
}

struct DecodeChunk {
  DecodeRequest request;
  std::int32_t tile_begin = 0;
  std::int32_t tile_end = 0;
  std::int32_t part = 0;   ///< which of the request's parts this is
  std::int32_t parts = 1;  ///< 1: the whole request
  std::int32_t first_place =
      0;  ///< part i of unit u is kept at place (first_place + i) * units + u
  std::int32_t side_by_side = 0;  ///< 1: the list is even, the request's parts follow one another
};
static_assert(sizeof(DecodeChunk) == 48, "three vector loads");

/// In front of the chunks.
struct DecodeWork {
  std::int32_t num_chunks = 0;
  std::int32_t num_items = 0;
  std::int32_t reserved[2] = {0, 0};
};

struct CutRule {
  std::int32_t workers = 1;  ///< CTAs
  std::int32_t units = 1;
  std::int32_t max_chunks = 0;
  std::int32_t max_parts = 0;   ///< places in the workspace, in chunks
  std::int32_t min_tiles = 1;   ///< shorter chunks cost more than they balance
  std::int32_t even_tiles = 0;  ///< up to this share a worker, every worker gets one equal chunk …
  std::int32_t least_even_tiles = 1;  ///< … but none shorter than this
};

/// Where the cutting of one request stands; the caller keeps one a request.
struct CutState {
  std::int32_t tiles = 0;
  std::int32_t level =
      0;                ///< of a short request; kAllLevels: a long one has a share in every level
  std::int32_t at = 0;  ///< tiles cut so far
  std::int32_t part = 0;
  std::int32_t parts = 0;
  std::int32_t first_place = 0;
};
inline constexpr std::int32_t kAllLevels = -1;

inline constexpr std::int32_t kMostLevels = 16;

/// The sizes in force for one batch.
struct CutLevels {
  std::int32_t count = 1;
  std::int64_t size = 1;  ///< of level 0, in tiles
  bool even = false;      ///< equal chunks, no more than size
  std::int64_t total = 0;
};

/// Pieces of one request at one level: `count` of them, together `tiles` long.
struct CutPieces {
  std::int32_t count = 0;
  std::int32_t tiles = 0;
};

/// a / b of numbers that are not negative, by a short division where both are short: half a
/// microsecond each on a GPU else.
[[nodiscard]] constexpr std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

/// Equal chunks, one a worker, where shares are small; else chunks come in levels.
[[nodiscard]] constexpr bool cuts_evenly(const CutRule& rule, std::int64_t total,
                                         std::int32_t num_requests) {
  const std::int64_t share = (total * rule.units + rule.workers - 1) / rule.workers;
  return share <= rule.even_tiles && num_requests < rule.workers / rule.units;
}

/// The least size that makes no more even chunks than there are workers is one of these, the last
/// of which is small enough: sum(ceil(tiles / size)) <= total / size + requests.
struct EvenSizes {
  std::int64_t low = 1;
  std::int64_t high = 1;
};
[[nodiscard]] constexpr EvenSizes even_sizes(const CutRule& rule, std::int64_t total,
                                             std::int32_t num_requests) {
  const std::int64_t share = (total * rule.units + rule.workers - 1) / rule.workers;
  const std::int64_t spare = rule.workers / rule.units - num_requests;
  EvenSizes sizes;
  sizes.low = share > rule.least_even_tiles ? share : rule.least_even_tiles;
  if (sizes.low < 1) sizes.low = 1;
  const std::int64_t enough = (total + spare - 1) / spare;
  sizes.high = enough > sizes.low ? enough : sizes.low;
  return sizes;
}

[[nodiscard]] constexpr CutLevels factored(const CutRule& rule, std::int64_t total) {
  const std::int64_t share = (total * rule.units + rule.workers - 1) / rule.workers;
  const std::int64_t least = rule.min_tiles < 1 ? 1 : rule.min_tiles;
  CutLevels levels;
  levels.total = total;
  levels.size = share / 2 > least ? share / 2 : least;
  while (levels.count < kMostLevels && (levels.size >> levels.count) >= least) ++levels.count;
  return levels;
}
namespace detail {

/// tiles / size to the nearest, one at least. Most requests stay whole: no division for them.
[[nodiscard]] constexpr std::int32_t rounded(std::int64_t tiles, std::int64_t size) {
  const std::int64_t halved = tiles + size / 2;
  return halved < 2 * size ? 1 : static_cast<std::int32_t>(quotient(halved, size));
}

/// The level a request belongs to: a short one that of its place in the work, `left` tiles before
/// the end.
[[nodiscard]] constexpr std::int32_t level_of(const CutLevels& levels, std::int32_t tiles,
                                              std::int64_t left) {
  if (levels.even) return 0;
  if (tiles > levels.size + levels.size / 2) return kAllLevels;
  std::int32_t level = 0;
  while (level + 1 < levels.count && left <= levels.total >> (level + 1)) ++level;
  return level;
}

}  // namespace detail

/// What a request gives to a level, cut as far as `s` says. Without levels everything stays whole.
[[nodiscard]] constexpr CutPieces pieces_at(const CutLevels& levels, std::int32_t level,
                                            const CutState& s) {
  if (levels.count == 0) return {1, s.tiles};
  if (s.level != kAllLevels && s.level != level) return {};
  const std::int64_t size = levels.size >> level;
  if (levels.even) return {static_cast<std::int32_t>(quotient(s.tiles + size - 1, size)), s.tiles};
  if (s.level == level) return {detail::rounded(s.tiles, size), s.tiles};
  const std::int32_t rest = s.tiles - s.at;
  if (rest == 0) return {};
  const bool last = level + 1 == levels.count;
  const std::int32_t count = detail::rounded(last ? rest : rest / 2, size);
  if (last || count * size >= rest) return {detail::rounded(rest, size), rest};
  return {count, static_cast<std::int32_t>(count * size)};
}

/// Level and number of parts of a request of `tiles` tiles, with `left` from its first on.
[[nodiscard]] constexpr CutState count_parts(const CutLevels& levels, std::int32_t tiles,
                                             std::int64_t left) {
  CutState s;
  s.tiles = tiles;
  s.level = detail::level_of(levels, tiles, left);
  const std::int32_t first = s.level == kAllLevels ? 0 : s.level;
  for (std::int32_t level = first; level < levels.count; ++level) {
    const CutPieces pieces = pieces_at(levels, level, s);
    s.parts += pieces.count;
    s.at += pieces.tiles;
    if (s.level == level) break;
  }
  if (s.parts == 0) s.parts = 1;
  s.at = 0;
  return s;
}

/// Piece i of `pieces` as a chunk; `s` says where the request stood before them.
[[nodiscard]] constexpr DecodeChunk chunk_of(const CutLevels& levels, const DecodeRequest& request,
                                             const CutState& s, const CutPieces& pieces,
                                             std::int32_t i) {
  const std::int64_t tiles = pieces.tiles;
  const auto cut = [&](std::int64_t n) {
    return s.at + (n == 0 ? 0
                   : n == pieces.count
                       ? pieces.tiles
                       : static_cast<std::int32_t>(quotient(tiles * n, pieces.count)));
  };
  return {.request = request,
          .tile_begin = cut(i),
          .tile_end = cut(i + 1),
          .part = s.part + i,
          .parts = s.parts,
          .first_place = s.first_place,
          .side_by_side = levels.even ? 1 : 0};
}

/// Cuts `num_requests` requests: `request(r)` gives one, `state(r)` its CutState, `emit(index,
/// chunk)` takes a chunk. O(requests * levels + chunks). The same list is made on the device by
/// kernels/decode_plan.
template <class Request, class State, class Emit>
constexpr DecodeWork cut_requests(const CutRule& rule, std::int32_t tile, std::int32_t num_requests,
                                  Request request, State state, Emit emit) {
  std::int64_t total = 0;
  std::int32_t longest = 0;
  const base::FastDivisor by_tile(static_cast<std::uint32_t>(tile));
  for (std::int32_t r = 0; r < num_requests; ++r) {
    const std::int32_t tiles = tiles_of(request(r), by_tile);
    state(r).tiles = tiles;
    total += tiles;
    longest = tiles > longest ? tiles : longest;
  }
  CutLevels levels;
  if (cuts_evenly(rule, total, num_requests)) {
    EvenSizes sizes = even_sizes(rule, total, num_requests);
    while (sizes.low < sizes.high) {
      const std::int64_t middle = (sizes.low + sizes.high) / 2;
      std::int64_t chunks = 0;
      for (std::int32_t r = 0; r < num_requests; ++r)
        chunks += quotient(state(r).tiles + middle - 1, middle);
      if (chunks <= rule.workers / rule.units)
        sizes.high = middle;
      else
        sizes.low = middle + 1;
    }
    levels = {.count = 1, .size = sizes.low, .even = true, .total = total};
  } else {
    levels = factored(rule, total);
  }

  // Many requests are mostly short even for the last level, which cuts finest: all stay whole.
  DecodeWork work;
  if (!levels.even && detail::rounded(longest, levels.size >> (levels.count - 1)) == 1) {
    for (std::int32_t r = 0; r < num_requests; ++r)
      emit(r, DecodeChunk{.request = request(r), .tile_end = state(r).tiles});
    return {.num_chunks = num_requests, .num_items = num_requests * rule.units};
  }
  // Mostly no request is long and the places suffice: then the list is written as it is counted.
  if (levels.count > 0) {
    std::int64_t left = levels.total;
    std::int64_t places = 0;
    std::int32_t r = 0;
    for (; r < num_requests; ++r) {
      CutState s = count_parts(levels, state(r).tiles, left);
      if (s.level == kAllLevels) break;
      s.first_place = static_cast<std::int32_t>(places);
      if (s.parts > 1) places += s.parts;
      if (places > rule.max_parts) break;
      left -= s.tiles;
      const CutPieces pieces = pieces_at(levels, s.level, s);
      const DecodeRequest& now = request(r);
      for (std::int32_t i = 0; i < pieces.count; ++i)
        emit(work.num_chunks++, chunk_of(levels, now, s, pieces, i));
    }
    work.num_items = work.num_chunks * rule.units;
    if (r == num_requests) return work;
    work = {};
  }

  // Count first: parts must know how many they are, and their places must suffice. Fewer levels
  // make fewer parts.
  std::int32_t num_long = 0;
  for (; levels.count >= 0; --levels.count) {
    std::int64_t left = levels.total;
    std::int64_t places = 0;
    num_long = 0;
    for (std::int32_t r = 0; r < num_requests; ++r) {
      CutState s = count_parts(levels, state(r).tiles, left);
      s.first_place = static_cast<std::int32_t>(places);
      if (s.parts > 1) places += s.parts;
      left -= s.tiles;
      num_long += s.level == kAllLevels ? 1 : 0;
      state(r) = s;
    }
    if (places <= rule.max_parts) break;
    if (levels.even) levels.count = 1;  // one level or none
  }

  const auto give = [&](std::int32_t r, std::int32_t level) {
    CutState& s = state(r);
    const CutPieces pieces = pieces_at(levels, level, s);
    if (pieces.count == 0) return;
    const DecodeRequest& now = request(r);
    for (std::int32_t i = 0; i < pieces.count; ++i)
      emit(work.num_chunks++, chunk_of(levels, now, s, pieces, i));
    s.part += pieces.count;
    s.at += pieces.tiles;
  };
  // Longest first: at each level the pieces of long requests, then short requests, whose levels
  // never fall from one to the next.
  std::int32_t next_short = 0;
  const std::int32_t passes = levels.count > 0 ? levels.count : 1;
  for (std::int32_t level = 0; level < passes; ++level) {
    for (std::int32_t r = 0; num_long > 0 && r < num_requests; ++r)
      if (state(r).level == kAllLevels) give(r, level);
    for (; next_short < num_requests && state(next_short).level <= level; ++next_short)
      if (state(next_short).level != kAllLevels) give(next_short, level);
  }
  work.num_items = work.num_chunks * rule.units;
  return work;
}

}  // namespace attune::attention
