// The C symbol by which the suite gets a GPU's memory out of libattune_cuda.so (layer conformance).
#pragma once

#include <memory>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "conformance/device_memory.hpp"

namespace attune::conformance {

/// Library and program are built together; the loader's ABI check (attune_backend_entry_v1) comes
/// first.
using CudaMemoryFunction = void (*)(const DeviceInfo& device,
                                    Result<std::unique_ptr<DeviceMemory>>& made);
inline constexpr const char* kCudaMemorySymbol = "attune_conformance_memory_v1";

}  // namespace attune::conformance
