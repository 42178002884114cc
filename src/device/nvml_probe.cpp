// GPU facts through NVML, which never creates a CUDA context. NVML numbers devices by PCI bus; CUDA
// numbers what CUDA_VISIBLE_DEVICES leaves, so indices are mapped here.
#include "device/nvml_probe.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <memory>

namespace attune::device {
namespace {

// The few NVML symbols used, declared by their published C ABI.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
constexpr int kNvmlSuccess = 0;

struct Nvml {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, NvmlDevice*) = nullptr;
  int (*device_name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*capability)(NvmlDevice, int*, int*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;

  Nvml() {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    load("nvmlInit_v2", init);
    load("nvmlShutdown", shutdown);
    load("nvmlDeviceGetCount_v2", count);
    load("nvmlDeviceGetHandleByIndex_v2", handle);
    load("nvmlDeviceGetName", device_name);
    load("nvmlDeviceGetUUID", uuid);
    load("nvmlDeviceGetCudaComputeCapability", capability);
    load("nvmlDeviceGetMemoryInfo", memory);
    load("nvmlSystemGetDriverVersion", driver);
  }
  ~Nvml() {
    if (library != nullptr) dlclose(library);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] bool complete() const {
    return init != nullptr && shutdown != nullptr && count != nullptr && handle != nullptr &&
           device_name != nullptr && uuid != nullptr && capability != nullptr &&
           memory != nullptr && driver != nullptr;
  }

 private:
  template <class Function>
  void load(const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
  }
};

/// SMs of the parts whose count is not to be had from NVML; 0 = unknown, and the backend asks the
/// driver when it is made.
int sm_count_of(std::string_view name) {
  if (name.find("H200") != std::string_view::npos) return 132;
  if (name.find("H100 PCIe") != std::string_view::npos) return 114;
  if (name.find("H100") != std::string_view::npos) return 132;
  if (name.find("A100") != std::string_view::npos) return 108;
  return 0;
}

}  // namespace

NvmlReport probe_nvml() {
  NvmlReport report;
  const Nvml nvml;
  if (nvml.library == nullptr) {
    report.problem = "libnvidia-ml.so.1 not found: no NVIDIA driver is installed";
    return report;
  }
  if (!nvml.complete() || nvml.init() != kNvmlSuccess) {
    report.problem =
        "libnvidia-ml.so.1 is there but does not start: the driver's kernel module is missing or "
        "too old";
    return report;
  }
  char text[96] = {};
  if (nvml.driver(text, sizeof text) == kNvmlSuccess) report.driver = text;
  unsigned n = 0;
  if (nvml.count(&n) != kNvmlSuccess) n = 0;
  for (unsigned i = 0; i < n; ++i) {
    NvmlDevice handle = nullptr;
    if (nvml.handle(i, &handle) != kNvmlSuccess) continue;
    NvmlGpu gpu;
    gpu.nvml_index = static_cast<int>(i);
    if (nvml.device_name(handle, text, sizeof text) == kNvmlSuccess) gpu.info.name = text;
    if (nvml.uuid(handle, text, sizeof text) == kNvmlSuccess) gpu.uuid = text;
    int major = 0;
    int minor = 0;
    if (nvml.capability(handle, &major, &minor) == kNvmlSuccess) gpu.info.sm = 10 * major + minor;
    NvmlMemory memory{};
    if (nvml.memory(handle, &memory) == kNvmlSuccess)
      gpu.info.memory_bytes = static_cast<std::int64_t>(memory.total);
    gpu.info.kind = DeviceKind::cuda;
    gpu.info.num_units = sm_count_of(gpu.info.name);
    report.gpus.push_back(std::move(gpu));
  }
  nvml.shutdown();
  return report;
}

std::vector<NvmlGpu> visible_gpus(std::vector<NvmlGpu> gpus, const char* cuda_visible_devices) {
  if (cuda_visible_devices == nullptr) {
    for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i].info.index = static_cast<int>(i);
    return gpus;
  }
  // CUDA's rule: a comma-separated list of ordinals or UUID prefixes; the first bad entry ends the
  // list.
  std::vector<NvmlGpu> visible;
  std::string_view rest = cuda_visible_devices;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    std::string_view word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const NvmlGpu& gpu) {
      return word == std::to_string(gpu.nvml_index) ||
             (word.starts_with("GPU-") && gpu.uuid.starts_with(word));
    });
    if (found == gpus.end()) break;
    NvmlGpu gpu = *found;
    gpu.info.index = static_cast<int>(visible.size());
    visible.push_back(std::move(gpu));
  }
  return visible;
}

}  // namespace attune::device
