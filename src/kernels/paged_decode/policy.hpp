// Numbers that the decode kernel and its planner must agree on (layer kernels).
#pragma once

namespace attune::kernels::paged_decode {

/// Query heads of one KV head handled per read of a key; more belong to ragged_prefill, where keys
/// are packed once and multiplied many times.
inline constexpr int kMaxGroup = 8;

/// Query heads an item may have over all its KV heads.
inline constexpr int kMaxRows = 64;

/// Keys and values of one tile over all of an item's KV heads: with the next tile on its way it
/// should fill about half of a core's second-level cache.
inline constexpr int kTileBytes = 256 * 1024;

}  // namespace attune::kernels::paged_decode
