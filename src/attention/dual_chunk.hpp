// Which of the three queries of a head meets which keys, in dual chunk attention (layer attention).
// Positions count from a request's first key. Chunk n holds positions n * len … n * len + len - 1;
// a query of chunk n meets
//
//   query 0   its own chunk, up to itself      [n * len, p]
//   query 1   the chunk before                 [(n - 1) * len, n * len)
//   query 2   all earlier ones                 [0, (n - 1) * len)
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/mask.hpp"

namespace attune::attention {

/// Of a query at position p, keys of its query `which`, 0 … kDualChunkQueries - 1: one range, empty
/// where there are none.
[[nodiscard]] constexpr KeyRange dual_chunk_range(int which, std::int64_t chunk_len,
                                                  std::int64_t p) {
  if (p < 0) return {};
  const std::int64_t own = p / chunk_len * chunk_len;
  const std::int64_t before = std::max<std::int64_t>(own - chunk_len, 0);
  if (which == 0) return {own, p + 1};
  if (which == 1) return {before, own};
  return {0, before};
}

}  // namespace attune::attention
