// Tile sizes of linear attention: kernel and planner read the same numbers (layer kernels).
#pragma once

namespace attune::kernels::linear {

inline constexpr int kChunk = 64;  ///< tokens in parallel form
inline constexpr int kBlock =
    16;  ///< inside a chunk: rows of the triangular solve, kda's decay blocks
inline constexpr int kPadding =
    16;  ///< floats that scratch rows are padded to; a multiple of every vector width
inline constexpr int kMaxTaps = 8;         ///< of the convolution
inline constexpr int kSharedHeads = 8;     ///< value heads that go through a chunk together
inline constexpr int kLine = 16;           ///< floats of a cache line
inline constexpr int kAhead = 2048;        ///< floats a decode step fetches ahead in the state
inline constexpr int kRecurrentBelow = 9;  ///< fewer tokens of a chunk go one by one

}  // namespace attune::kernels::linear
