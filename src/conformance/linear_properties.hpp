// The properties of linear attention: each one function, one sentence (layer conformance).
#pragma once

#include "conformance/case.hpp"

namespace attune::conformance {

/// o and both states agree with the recurrence; no other slot, row or gap changes.
extern const Property kLinearMatchesReference;
/// Other slots, other garbage in those nobody owns: the same bits (or within tolerance).
extern const Property kSlotsPermuted;
/// The same inputs give the same bits.
extern const Property kLinearDeterministic;
/// Cut anywhere and resumed from the states, a prompt gives what it gives whole.
extern const Property kResumesAnywhere;
/// A prompt cut at multiples of kPromptGranule has the bits that it has whole.
extern const Property kLinearCutsKeepBits;
/// n tokens at once equal n decodes.
extern const Property kLinearPrefillEqualsDecodes;
/// Verified drafts agree with the recurrence, and so does whatever follows the state before them.
extern const Property kDraftsCanBeForgotten;
/// One plan serves layers of different values.
extern const Property kLinearPlanServesLayers;
/// A plan refreshed to another batch equals a fresh one.
extern const Property kLinearRefreshEqualsFresh;
/// The stated workspace is enough; one byte less is an error.
extern const Property kLinearWorkspaceExact;
/// A workspace sized for a large batch serves every smaller one.
extern const Property kLinearBoundsCoverSmallerBatches;
/// A request's answer does not depend on its neighbours.
extern const Property kLinearNeighboursDoNotMatter;
/// State slots beyond 2^31 elements.
extern const Property kHugeStatePool;
/// Hostile batches and calls come back as errors, and nothing is written.
extern const Property kLinearRefusesHostileInput;
/// A recorded run, refreshed and replayed, equals an eager one; a batch it does not fit is refused.
extern const Property kLinearGraphReplay;

}  // namespace attune::conformance
