// The rows of the instance table, a file each so that they compile side by side. 26 kernels; the
// house limit is 24 an operation, and the two of levels are worth more: they write states.
#pragma once

#include <vector>

#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

[[nodiscard]] std::vector<Instance> fa3_instances();
[[nodiscard]] std::vector<Instance> fa3_gather_instances();
[[nodiscard]] std::vector<Instance> fa4_instances();

}  // namespace attune::kernels::ragged_prefill::sm90
