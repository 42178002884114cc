// The part of a problem that only variants with an indexer have (layer conformance).
#pragma once

#include "conformance/problem.hpp"

namespace attune::conformance {

/// Numbers on a coarse grid: every score is exact in fp32 in whatever order it is summed, so that
/// which keys are kept is a fact, ties among them included.
void make_sparse_problem(const Case& one, Random& random, Problem& problem);

/// The same lists, or the first difference.
[[nodiscard]] Outcome compare_lists(const Problem& problem, const Answer& have, const Answer& want);

}  // namespace attune::conformance
