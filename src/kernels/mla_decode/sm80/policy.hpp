// Numbers that the gathering latent kernel and its planner must agree on (layer kernels).
#pragma once

#include <cstdint>

namespace attune::kernels::mla_decode::sm80 {

inline constexpr int kThreads = 256;
inline constexpr int kKeys = 32;        ///< of a tile, from pages of any size
inline constexpr int kNarrowDim = 320;  ///< latents of no more columns have a kernel of their own

/// Rows of a block: 16 where the heads of a token are no more (95 KiB of shared memory, two blocks
/// an SM on Hopper), 64 elsewhere (156 KiB).
inline constexpr int kFewRows = 16;
inline constexpr int kManyRows = 64;

}  // namespace attune::kernels::mla_decode::sm80
