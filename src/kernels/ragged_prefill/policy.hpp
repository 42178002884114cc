// Numbers that the prefill kernel and its planner must agree on (layer kernels).
#pragma once

namespace attune::kernels::ragged_prefill {

/// Query rows (tokens times heads of the group) that share one packed tile of keys and values.
inline constexpr int kMaxRows = 384;

/// Rows of a register tile. With kNumColumns vectors beside it, it fills 24 of 32 (AVX-512) or 12
/// of 16 (AVX2) registers and reads 10 operands for 24 products, well under two loads a cycle.
inline constexpr int kStripRows = 6;

}  // namespace attune::kernels::ragged_prefill
