// Masks of a paged plan: their room in the workspace, and their way there.
#pragma once

#include <attune/batch.hpp>
#include <attune/status.hpp>

#include "backends/shared/cuda/paged_planner.hpp"

namespace attune::backends::shared::paged {

/// What batches within `bounds` may bring, into `n`.
void size_masks(const AttentionSpec& spec, const BatchBounds& bounds, Sizes& n);

/// A checked batch's mask by blocks to its images; refused where the plan has no room for it, for a
/// custom mask too. What a recorded run is launched with stays as a `fresh` plan made it.
[[nodiscard]] Status write_masks(const BatchView& batch, bool fresh, PagedPlan& plan);

}  // namespace attune::backends::shared::paged
