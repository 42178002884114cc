// The C symbol by which the benchmark gets a GPU out of libattune_cuda.so (layer bench).
#pragma once

#include <memory>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "bench/machine.hpp"

namespace attune::bench {

/// Library and program are built together; the loader's ABI check comes first.
using CudaMachineFunction = void (*)(const DeviceInfo& device,
                                     Result<std::unique_ptr<Machine>>& made);
inline constexpr const char* kCudaMachineSymbol = "attune_bench_machine_v1";

}  // namespace attune::bench
