// The properties: each one function, one sentence about every backend (layer conformance).
#pragma once

#include "conformance/case.hpp"

namespace attune::conformance {

/// o and lse agree with the reference; nothing else in memory changes.
extern const Property kMatchesReference;
/// Other pages, other garbage in unread slots: the same bits (or within tolerance).
extern const Property kPagesPermuted;
/// The same inputs give the same bits, twice and with any number of threads.
extern const Property kDeterministic;
/// A prefill in chunks equals the whole.
extern const Property kChunkedEqualsWhole;
/// A prompt cut at multiples of kPromptGranule has the bits that it has whole.
extern const Property kCutsKeepBits;
/// A prefill of n tokens equals n decodes.
extern const Property kPrefillEqualsDecodes;
/// One plan serves layers of different values.
extern const Property kPlanServesLayers;
/// A plan refreshed to other lengths equals a fresh one.
extern const Property kRefreshEqualsFresh;
/// The stated workspace is enough; one byte less is an error.
extern const Property kWorkspaceExact;
/// A request's answer does not depend on its neighbours.
extern const Property kNeighboursDoNotMatter;
/// Keys cut in two parts, joined by lse, equal the whole.
extern const Property kPartsMerge;
/// What append_kv writes is what run reads, and it writes nothing else.
extern const Property kAppendThenRun;
/// Named shared prefixes change nothing: not a bit where neighbours may not matter, nothing beyond
/// rounding elsewhere.
extern const Property kCascadeEqualsFlat;
/// Offsets beyond 2^31 and 2^32 elements, read and written.
extern const Property kHugePool;
extern const Property kHugePoolAppend;
/// A workspace sized for a large batch serves every smaller one.
extern const Property kBoundsCoverSmallerBatches;
/// Hostile batches and calls come back as errors, and nothing is written.
extern const Property kRefusesHostileInput;
/// Two plans with two workspaces, run at once (on two streams; on a CPU, by two threads), give what
/// each gives alone.
extern const Property kPlansRunTogether;
/// A recorded run, refreshed and replayed, equals an eager one; a batch it does not fit is refused.
extern const Property kGraphReplay;
/// Sparse attention with room for every key is dense attention.
extern const Property kAllKeptEqualsDense;
/// Dual chunk attention within one chunk is dense attention with the first of a head's queries.
extern const Property kOneChunkEqualsDense;
/// Page tables on the device give the bits of page tables on the host, refreshed and replayed.
extern const Property kPlansOnTheDevice;

}  // namespace attune::conformance
