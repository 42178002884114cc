#include "kernels/ragged_prefill/sm90/instance.cuh"
#include "kernels/ragged_prefill/sm90/instances.hpp"
#include "kernels/ragged_prefill/sm90/tiles.cuh"

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

template <class Element>
using Level = Config<Element, 128, 128, Levels128, Softmax<0, true>>;

}  // namespace

std::vector<Instance> level_instances() {
  return {instance_of<Level<__nv_bfloat16>>("shared level bf16 128", Strategy::fa4),
          instance_of<Level<__half>>("shared level fp16 128", Strategy::fa4)};
}

}  // namespace attune::kernels::ragged_prefill::sm90
