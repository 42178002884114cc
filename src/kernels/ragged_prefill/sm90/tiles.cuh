// Tile sizes by head dims, each the fastest of those tried on an H200
// (docs/performance/cuda-prefill.md has the others).
#pragma once

#include "kernels/ragged_prefill/sm90/config.cuh"
#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

//                            keys  warpgroups  stages of q, k, v
using Tiles64 = Tiles<128, 3, 2, 4, 4>;
using Tiles128 = Tiles<128, 2, 2, 3, 2>;
/// A third fewer reads of K and V, but 192 rows of one head fit short sequences badly.
using Tiles128Tall = Tiles<80, 3, 2, 3, 3>;
inline constexpr Cost kFa3Cost128Tall{.tile = 2840, .key_tile = 2440};
inline constexpr Cost kFa4Cost128{.tile = 2450, .key_tile = 2560};
inline constexpr Cost kFa4Cost128Tall{.tile = 2830, .key_tile = 2190};
/// fp8 keys: so few a tile that registers are left for those that widen it.
using Tiles64Widened = Tiles<96, 3, 2, 4, 4>;
using Tiles128Widened = Tiles<64, 3, 2, 3, 3>;
using Tiles192 = Tiles<80, 3, 1, 2, 2, Output::own_memory>;
using Tiles256 = Tiles<80, 2, 1, 2, 2, Output::registers>;

/// Levels of shared prefixes: rows of one KV head, many keys.
using Levels128 = Tiles<128, 2, 1, 3, 2, Output::states>;

}  // namespace attune::kernels::ragged_prefill::sm90
