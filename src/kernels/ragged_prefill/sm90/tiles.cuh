// Tile sizes by head dims, each the fastest of those tried on an H200
// (docs/performance/cuda-prefill.md has the others).
#pragma once

#include "kernels/ragged_prefill/sm90/config.cuh"
#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

//                            keys  warpgroups  stages of q, k, v
using Tiles64 = Tiles<128, 3, 2, 4, 4>;
using Tiles128 = Tiles<128, 2, 2, 3, 2, Output::in_queries, RowSums::by_additions>;
/// A third fewer reads of K and V, but 192 rows of one head fit short sequences badly.
using Tiles128Tall = Tiles<80, 3, 2, 3, 3>;
using Tiles192 = Tiles<80, 3, 1, 2, 2, Output::own_memory, RowSums::by_additions>;
using Tiles256 = Tiles<80, 2, 1, 2, 2, Output::registers, RowSums::by_additions>;
/// fp8 keys: so few a tile that registers are left for those that widen it.
using Tiles64Widened = Tiles<96, 3, 2, 4, 4>;
using Tiles128Widened = Tiles<64, 3, 2, 3, 3>;

// Fitted to the times of two or three cases, where there is one to it and 2500 cycles a tile.
inline constexpr Cost kFa3Cost64{.tile = 2500, .key_tile = 2470};
inline constexpr Cost kFa4Cost64{.tile = 2500, .key_tile = 2230};
inline constexpr Cost kFa3Cost128Tall{.tile = 2840, .key_tile = 2440};
inline constexpr Cost kFa4Cost128{.tile = 2450, .key_tile = 2560};
inline constexpr Cost kFa4Cost128Tall{.tile = 2830, .key_tile = 2190};
inline constexpr Cost kCost192{.tile = 2500, .key_tile = 2890};
inline constexpr Cost kFa3Cost256{.tile = 2500, .key_tile = 2930};
inline constexpr Cost kFa4Cost256{.tile = 2500, .key_tile = 2840};
/// Pages of one token.
inline constexpr Cost kGatherCost64{.tile = 2500, .key_tile = 3360};
inline constexpr Cost kGatherCost128{.tile = 4090, .key_tile = 2920};
inline constexpr Cost kGatherCost192{.tile = 2500, .key_tile = 3700};
inline constexpr Cost kGatherCost256{.tile = 2500, .key_tile = 3470};
/// Pages of 64 tokens; ragged rows take an eighth less, pages of one token an eighth more.
inline constexpr Cost kWidenedCost64{.tile = 2500, .key_tile = 2300};
inline constexpr Cost kWidenedCost128{.tile = 5600, .key_tile = 2410};

/// Levels of shared prefixes: rows of one KV head, many keys.
using Levels128 = Tiles<128, 2, 1, 3, 2, Output::states, RowSums::by_additions>;

}  // namespace attune::kernels::ragged_prefill::sm90
