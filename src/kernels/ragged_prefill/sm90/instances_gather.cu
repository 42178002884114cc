#include "kernels/ragged_prefill/sm90/instance.cuh"
#include "kernels/ragged_prefill/sm90/instances.hpp"
#include "kernels/ragged_prefill/sm90/tiles.cuh"

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

template <class Element, int Qk, int Vo, class T>
using AnyPage = Config<Element, Qk, Vo, T, Softmax<0, true>, KvLoad::gather>;
using Bf16 = __nv_bfloat16;
using F16 = __half;

}  // namespace

std::vector<Instance> gather_instances() {
  return {
      instance_of<AnyPage<Bf16, 64, 64, Tiles64>>("prefill bf16 64, any page", Strategy::both,
                                                  kGatherCost64),
      instance_of<AnyPage<Bf16, 128, 128, Tiles128Tall>>("prefill bf16 128, any page",
                                                         Strategy::both, kGatherCost128),
      instance_of<AnyPage<Bf16, 192, 128, Tiles192>>("prefill bf16 192/128, any page",
                                                     Strategy::both, kGatherCost192),
      instance_of<AnyPage<Bf16, 256, 256, Tiles256>>("prefill bf16 256, any page", Strategy::both,
                                                     kGatherCost256),
      instance_of<AnyPage<F16, 64, 64, Tiles64>>("prefill fp16 64, any page", Strategy::both,
                                                 kGatherCost64),
      instance_of<AnyPage<F16, 128, 128, Tiles128Tall>>("prefill fp16 128, any page",
                                                        Strategy::both, kGatherCost128),
      instance_of<AnyPage<F16, 256, 256, Tiles256>>("prefill fp16 256, any page", Strategy::both,
                                                    kGatherCost256),
  };
}

}  // namespace attune::kernels::ragged_prefill::sm90
