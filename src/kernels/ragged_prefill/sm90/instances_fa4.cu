#include "kernels/ragged_prefill/sm90/instance.cuh"
#include "kernels/ragged_prefill/sm90/instances.hpp"
#include "kernels/ragged_prefill/sm90/tiles.cuh"

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

template <class Element, int Qk, int Vo, class T>
using Lazy = Config<Element, Qk, Vo, T, Softmax<0, true>>;
using Bf16 = __nv_bfloat16;
using F16 = __half;

}  // namespace

std::vector<Instance> fa4_instances() {
  return {
      instance_of<Lazy<Bf16, 64, 64, Tiles64>>("fa4 prefill bf16 64", Strategy::fa4, kFa4Cost64),
      instance_of<Lazy<Bf16, 128, 128, Tiles128>>("prefill bf16 128", Strategy::both, kFa4Cost128),
      instance_of<Lazy<Bf16, 128, 128, Tiles128Tall>>("fa4 prefill bf16 128, 192 rows",
                                                      Strategy::fa4, kFa4Cost128Tall),
      instance_of<Lazy<Bf16, 192, 128, Tiles192>>("prefill bf16 192/128", Strategy::both, kCost192),
      instance_of<Lazy<Bf16, 256, 256, Tiles256>>("fa4 prefill bf16 256", Strategy::fa4,
                                                  kFa4Cost256),
      instance_of<Lazy<F16, 64, 64, Tiles64>>("prefill fp16 64", Strategy::both, kFa4Cost64),
      instance_of<Lazy<F16, 128, 128, Tiles128>>("prefill fp16 128", Strategy::both, kFa4Cost128),
      instance_of<Lazy<F16, 128, 128, Tiles128Tall>>("prefill fp16 128, 192 rows", Strategy::both,
                                                     kFa4Cost128Tall),
      instance_of<Lazy<F16, 256, 256, Tiles256>>("prefill fp16 256", Strategy::both, kFa4Cost256),
  };
}

}  // namespace attune::kernels::ragged_prefill::sm90
