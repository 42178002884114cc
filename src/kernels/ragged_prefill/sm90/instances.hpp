// The rows of the instance table, a file each so that they compile side by side. At most 26
// kernels, those of levels and of blocks included. The eager rule of fa3 is kept where it was measured beside
// fa4's, in bf16; elsewhere both names take the faster kernels.
#pragma once

#include <vector>

#include "kernels/ragged_prefill/sm90/launch.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

[[nodiscard]] std::vector<Instance> fa3_instances();
[[nodiscard]] std::vector<Instance> gather_instances();
[[nodiscard]] std::vector<Instance> fa4_instances();
[[nodiscard]] std::vector<Instance> fp8_instances();

}  // namespace attune::kernels::ragged_prefill::sm90
