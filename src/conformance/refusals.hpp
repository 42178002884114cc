// From a request that a row accepts, one field changed to what the row does not declare: exactly
// that rule refuses, and so does the backend's own factory (layer conformance).
#pragma once

#include <vector>

#include "conformance/suite.hpp"

namespace attune::conformance {

/// One result a change, named VARIANT/refusal/RULE/PHASE.
[[nodiscard]] std::vector<CaseResult> check_refusals(const Subject& subject, const Capability& row,
                                                     std::string_view match);

}  // namespace attune::conformance
