// Numbers that the prefill kernel and its planner must agree on (layer kernels).
#pragma once

namespace attune::kernels::ragged_prefill {

/// Query rows (tokens times heads of the group) that share one packed tile of keys and values.
inline constexpr int kMaxRows = 384;

}  // namespace attune::kernels::ragged_prefill
