#include "kernels/ragged_prefill/sm90/instance.cuh"
#include "kernels/ragged_prefill/sm90/instances.hpp"
#include "kernels/ragged_prefill/sm90/tiles.cuh"

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

template <class Element, int Qk, int Vo, class T>
using Fa3 = Config<Element, Qk, Vo, T, Softmax<0, false>>;
using Bf16 = __nv_bfloat16;
using F16 = __half;

}  // namespace

std::vector<Instance> fa3_instances() {
  return {
      instance_of<Fa3<Bf16, 64, 64, Tiles64>>("fa3 prefill bf16 64", Strategy::fa3),
      instance_of<Fa3<Bf16, 128, 128, Tiles128>>("fa3 prefill bf16 128", Strategy::fa3,
                                                 kFa3Cost128),
      instance_of<Fa3<Bf16, 128, 128, Tiles128Tall>>("fa3 prefill bf16 128, 192 rows",
                                                     Strategy::fa3, kFa3Cost128Tall),
      instance_of<Fa3<Bf16, 192, 128, Tiles192>>("fa3 prefill bf16 192/128", Strategy::fa3),
      instance_of<Fa3<Bf16, 256, 256, Tiles256>>("fa3 prefill bf16 256", Strategy::fa3),
      instance_of<Fa3<F16, 64, 64, Tiles64>>("fa3 prefill fp16 64", Strategy::fa3),
      instance_of<Fa3<F16, 128, 128, Tiles128>>("fa3 prefill fp16 128", Strategy::fa3, kFa3Cost128),
      instance_of<Fa3<F16, 256, 256, Tiles256>>("fa3 prefill fp16 256", Strategy::fa3),
  };
}

}  // namespace attune::kernels::ragged_prefill::sm90
