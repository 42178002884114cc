// Ops of whatever device a model is to run on (layer model).
#pragma once

#include <memory>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "model/cpu_ops.hpp"
#include "model/ops.hpp"

namespace attune::model {

/// What the device's ops cannot promise; asked before anything is opened or chosen.
Status check_device_ops(const DeviceInfo& device, const CpuOpsOptions& options);

/// CPU ones in the program; a GPU's come out of libattune_cuda.so, which is opened here if nobody
/// has.
Result<std::unique_ptr<Ops>> make_device_ops(const DeviceInfo& device, Executor& executor,
                                             const CpuOpsOptions& options);

}  // namespace attune::model
