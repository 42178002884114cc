// Rows that hold every feasible pair of values of any two factors (layer conformance).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace attune::conformance {

/// One value index per factor; kUnset while a row is being filled.
using FactorRow = std::vector<int>;
inline constexpr int kUnset = -1;

/// Greedy: each row starts from a pair not yet held and takes, factor by factor, the value that
/// holds most of the others. `feasible` judges rows with unset factors too; a pair that no row
/// could be completed from is given up.
[[nodiscard]] std::vector<FactorRow> pairwise(const std::vector<int>& sizes,
                                              const std::function<bool(const FactorRow&)>& feasible,
                                              std::uint64_t seed);

/// Indices of rows that together hold every value of every factor.
[[nodiscard]] std::vector<std::size_t> each_value_once(const std::vector<FactorRow>& rows);

}  // namespace attune::conformance
