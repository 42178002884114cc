// Numbers that the Hopper latent kernel and its planner must agree on (layer kernels).
#pragma once

namespace attune::kernels::mla_decode::sm90 {

inline constexpr int kRows = 64;     ///< of a block
inline constexpr int kFewRows = 16;  ///< … of the smallest
inline constexpr int kKeys = 64;     ///< of a tile: one page

}  // namespace attune::kernels::mla_decode::sm90
