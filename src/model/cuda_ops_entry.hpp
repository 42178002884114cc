// The C symbol by which the program gets a GPU's Ops out of libattune_cuda.so (layer model).
#pragma once

#include <memory>

#include <attune/device.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/ops.hpp"

namespace attune::model {

/// Library and program are built together; the loader's ABI check (attune_backend_entry_v1) comes
/// first.
using CudaOpsFunction = void (*)(const DeviceInfo& device, DType weights,
                                 Result<std::unique_ptr<Ops>>& made);
inline constexpr const char* kCudaOpsSymbol = "attune_model_ops_v1";

}  // namespace attune::model
