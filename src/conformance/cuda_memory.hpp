// A present GPU's memory, out of libattune_cuda.so (layer conformance).
#pragma once

#include <memory>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "conformance/device_memory.hpp"

namespace attune::conformance {

/// Opens the library if nobody has; it stays open.
[[nodiscard]] Result<std::unique_ptr<DeviceMemory>> cuda_memory(const DeviceInfo& device);

}  // namespace attune::conformance
