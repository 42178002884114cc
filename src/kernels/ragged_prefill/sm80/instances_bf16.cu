#include "kernels/ragged_prefill/sm80/instance.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

const Instance* instances_bf16(std::size_t& count) {
  return instances_16<__nv_bfloat16>(DType::bf16, count);
}

}  // namespace attune::kernels::ragged_prefill::sm80
