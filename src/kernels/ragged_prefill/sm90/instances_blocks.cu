#include "kernels/ragged_prefill/sm90/instance.cuh"
#include "kernels/ragged_prefill/sm90/instances.hpp"
#include "kernels/ragged_prefill/sm90/tiles.cuh"

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

template <class Element>
using Kept = Config<Element, 128, 128, Tiles128, Softmax<0, true>, KvLoad::blocks>;

}  // namespace

std::vector<Instance> block_instances() {
  return {instance_of<Kept<__nv_bfloat16>>("kept blocks bf16 128", Strategy::fa4),
          instance_of<Kept<__half>>("kept blocks fp16 128", Strategy::fa4)};
}

}  // namespace attune::kernels::ragged_prefill::sm90
