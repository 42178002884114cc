// GPU facts without a CUDA context (layer device).
#pragma once

#include <string>
#include <vector>

#include <attune/device.hpp>

namespace attune::device {

struct NvmlGpu {
  DeviceInfo info;
  std::string uuid;
  int nvml_index = 0;
};

struct NvmlReport {
  std::vector<NvmlGpu> gpus;
  std::string driver;   ///< version, empty when unknown
  std::string problem;  ///< why there are no facts, empty when all is well
};

/// Opens libnvidia-ml.so.1, reads, closes it again.
[[nodiscard]] NvmlReport probe_nvml();

/// What CUDA will show of them, in its order. nullptr = the variable is not set.
[[nodiscard]] std::vector<NvmlGpu> visible_gpus(std::vector<NvmlGpu> gpus,
                                                const char* cuda_visible_devices);

}  // namespace attune::device
