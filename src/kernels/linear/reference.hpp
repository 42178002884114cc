// The recurrences of linear attention in double precision, one token at a time, straight from
// include/attune/linear_state.hpp (layer kernels). The oracle of every other form; also what the
// `reference` backend runs.
#pragma once

#include "kernels/linear/params.hpp"

namespace attune::kernels::linear {

/// Advances `item`'s state rows over its tokens and writes o. Reads conv_state and does not move
/// it.
void run_reference(const Params& p, const Item& item);

}  // namespace attune::kernels::linear
