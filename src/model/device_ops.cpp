#include "model/device_ops.hpp"

#include <dlfcn.h>

#include <string>

#include "model/cuda_ops_entry.hpp"
#include "registry/loader.hpp"

namespace attune::model {
namespace {

Result<std::unique_ptr<Ops>> cuda_ops(const DeviceInfo& device, CpuWeights weights) {
  const std::string path = registry::find_cuda_library();
  if (path.empty())
    return unsupported(
        "libattune_cuda.so is not beside this program: build with the CUDA toolkit, or use "
        "--device cpu");
  // Opened and checked for its ABI first; the handle is the one that stays open.
  if (const auto entry = registry::open_plugin(path); !entry.ok()) return entry.status();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto make = library == nullptr
                        ? nullptr
                        : reinterpret_cast<CudaOpsFunction>(dlsym(library, kCudaOpsSymbol));
  if (make == nullptr)
    return Status(StatusCode::plugin_error,
                  path + " was built without model arithmetic (ATTUNE_TOOLS=OFF)");
  Result<std::unique_ptr<Ops>> made = internal_error("attune_model_ops_v1 made nothing");
  make(device, weights == CpuWeights::f32 ? DType::f32 : DType::bf16, made);
  return made;
}

}  // namespace

Result<std::unique_ptr<Ops>> make_device_ops(const DeviceInfo& device, Executor& executor,
                                             const CpuOpsOptions& options) {
  switch (device.kind) {
    case DeviceKind::cpu: return make_cpu_ops(executor, options);
    case DeviceKind::cuda: return cuda_ops(device, options.weights);
    default:
      return unsupported("models run on cpu and cuda, not on " + std::string(name(device.kind)));
  }
}

}  // namespace attune::model
