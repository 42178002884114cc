// The library's kernels, then what was tried and lost: kept here so that a new card or compiler can
// be asked again.
#include "bench/cuda/prefill_variants.hpp"

#include "kernels/ragged_prefill/sm90/instance.cuh"
#include "kernels/ragged_prefill/sm90/tiles.cuh"

namespace {

using namespace attune::kernels::ragged_prefill::sm90;
using Bf16 = __nv_bfloat16;

/// fa4 with one exponential in eight on the FMA pipe.
using Polynomial = Softmax<2, true>;
using Lazy = Softmax<0, true>;

}  // namespace

std::vector<Instance> bench_instances() {
  std::vector<Instance> all = instances();
  const Instance tried[] = {
      instance_of<Config<Bf16, 64, 64, Tiles64, Polynomial>>("polynomial 64", Strategy::fa4),
      instance_of<Config<Bf16, 128, 128, Tiles128, Polynomial>>("polynomial 128", Strategy::fa4),
      instance_of<Config<Bf16, 128, 128, Tiles<176, 2, 1, 2, 2, Output::registers>, Lazy>>(
          "176 keys 128", Strategy::fa4),
      instance_of<Config<Bf16, 192, 128, Tiles<128, 2, 1, 2, 2, Output::registers>, Lazy>>(
          "128 keys 192/128", Strategy::fa4),
  };
  all.insert(all.end(), std::begin(tried), std::end(tried));
  return all;
}
