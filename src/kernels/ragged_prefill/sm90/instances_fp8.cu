#include "kernels/ragged_prefill/sm90/instance.cuh"
#include "kernels/ragged_prefill/sm90/instances.hpp"
#include "kernels/ragged_prefill/sm90/tiles.cuh"

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

/// Products in fp16, q and o in bf16.
template <int Dim, class T>
using Widened = Config<__half, Dim, Dim, T, Softmax<0, true>, KvLoad::widened, __nv_bfloat16>;

}  // namespace

std::vector<Instance> fp8_instances() {
  return {
      instance_of<Widened<64, Tiles64Widened>>("prefill e4m3 64", Strategy::both, kWidenedCost64),
      instance_of<Widened<128, Tiles128Widened>>("prefill e4m3 128", Strategy::both,
                                                 kWidenedCost128),
  };
}

}  // namespace attune::kernels::ragged_prefill::sm90
