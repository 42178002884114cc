#include "kernels/ragged_prefill/sm80/instance.cuh"

namespace attune::kernels::ragged_prefill::sm80 {

const Instance* instances_f16(std::size_t& count) {
  return instances_16<__half>(DType::f16, count);
}

}  // namespace attune::kernels::ragged_prefill::sm80
