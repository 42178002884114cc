// The whole table, apart from the launcher: a program may carry some of the kernels only.
#include "kernels/ragged_prefill/sm90/instances.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

std::vector<Instance> instances() {
  std::vector<Instance> all = fa3_instances();
  for (const auto& more : {gather_instances(), fa4_instances(), fp8_instances()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace attune::kernels::ragged_prefill::sm90
