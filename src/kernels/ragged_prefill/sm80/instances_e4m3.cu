#include "kernels/ragged_prefill/sm80/instance.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

const Instance* instances_e4m3(std::size_t& count) {
  return instances_8<__nv_fp8_e4m3>(DType::fp8_e4m3, count);
}

}  // namespace attune::kernels::ragged_prefill::sm80
