// Levels of shared prefixes in a paged plan (docs/decisions/0004-cascade.md): what they may need,
// which are worth taking, where they run.
#pragma once

#include <vector>

#include <attune/batch.hpp>

#include "backends/shared/cuda/paged_planner.hpp"
#include "plan/cascade.hpp"

namespace attune::backends::shared::paged {

/// What batches within `bounds` may bring, into `n`, whose other sizes stand.
void size_levels(const Setup& setup, const BatchBounds& bounds, Sizes& n);

/// The levels of a checked batch that are worth taking; `rules`, of the plan's tokens, are filled
/// where there are groups at all.
[[nodiscard]] plan::Cascade find_cascade(const Setup& setup, const BatchView& batch, const Sizes& n,
                                         std::vector<attention::TokenRule>& rules);

/// Settles how a plan runs its levels.
void choose_grids(const Setup& setup, const BatchView& batch, const plan::Cascade& cascade,
                  PagedPlan& plan);

/// What a run with levels reads besides the work lists.
void list_cascade(const Setup& setup, const BatchView& batch, const plan::Cascade& cascade,
                  PagedPlan& plan);

}  // namespace attune::backends::shared::paged
