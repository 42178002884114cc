// Ops on an NVIDIA GPU, inside libattune_cuda.so (layer model): matrix products by cuBLASLt,
// everything else by kernels/ops/cuda, all on one stream of its own.
#pragma once

#include <memory>

#include <attune/device.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/ops.hpp"

namespace attune::model::cuda {

/// Weights and activations are of `dtype`: bf16, or fp32 for exact comparisons (no TF32).
Result<std::unique_ptr<Ops>> make_cuda_ops(const DeviceInfo& device, DType dtype);

}  // namespace attune::model::cuda
