#include "kernels/ragged_prefill/sm80/instance.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

const Instance* instances_e5m2(std::size_t& count) {
  return instances_8<__nv_fp8_e5m2>(DType::fp8_e5m2, count);
}

}  // namespace attune::kernels::ragged_prefill::sm80
