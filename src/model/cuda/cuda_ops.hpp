// Ops on an NVIDIA GPU, inside libattune_cuda.so (layer model): matrix products by cuBLASLt,
// everything else by kernels/ops/cuda, all on one stream of its own.
#pragma once

#include <memory>

#include <attune/device.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/ops.hpp"

namespace attune::model::cuda {

/// Activations are fp32, weights of `weights`: bf16 (inputs of products are rounded to it), or fp32
/// for exact comparisons (no TF32).
Result<std::unique_ptr<Ops>> make_cuda_ops(const DeviceInfo& device, DType weights);

}  // namespace attune::model::cuda
