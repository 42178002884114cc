#include "kernels/ragged_prefill/sm90/instance.cuh"
#include "kernels/ragged_prefill/sm90/instances.hpp"
#include "kernels/ragged_prefill/sm90/tiles.cuh"

namespace attune::kernels::ragged_prefill::sm90 {
namespace {

template <int Dim, class T>
using Fa3 = Config<__nv_bfloat16, Dim, Dim, T, Softmax<0, false>>;

}  // namespace

std::vector<Instance> fa3_instances() {
  return {
      instance_of<Fa3<64, Tiles64>>("fa3 prefill bf16 64", Strategy::fa3, kFa3Cost64),
      instance_of<Fa3<128, Tiles128Tall>>("fa3 prefill bf16 128, 192 rows", Strategy::fa3,
                                          kFa3Cost128Tall),
      instance_of<Fa3<256, Tiles256>>("fa3 prefill bf16 256", Strategy::fa3, kFa3Cost256),
  };
}

}  // namespace attune::kernels::ragged_prefill::sm90
