#include "model/cuda/cuda_ops.hpp"
#include "model/cuda_ops_entry.hpp"

extern "C" __attribute__((visibility("default"))) void attune_model_ops_v1(
    const attune::DeviceInfo& device, attune::DType dtype,
    attune::Result<std::unique_ptr<attune::model::Ops>>& made) {
  made = attune::model::cuda::make_cuda_ops(device, dtype);
}
