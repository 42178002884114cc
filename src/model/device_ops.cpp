#include "model/device_ops.hpp"

#include "device/runnable.hpp"
#include "model/cuda_ops_entry.hpp"
#include "registry/loader.hpp"

namespace attune::model {
namespace {

Result<std::unique_ptr<Ops>> cuda_ops(const DeviceInfo& device, CpuWeights weights) {
  const Result<void*> symbol = registry::cuda_library_symbol(kCudaOpsSymbol);
  if (!symbol.ok()) return symbol.status();
  Result<std::unique_ptr<Ops>> made = internal_error("attune_model_ops_v1 made nothing");
  reinterpret_cast<CudaOpsFunction> (*symbol)(
      device, weights == CpuWeights::f32 ? DType::f32 : DType::bf16, made);
  return made;
}

}  // namespace

Status check_device_ops(const DeviceInfo& device, const CpuOpsOptions& options) {
  if (device.kind != DeviceKind::cpu && device.kind != DeviceKind::cuda)
    return unsupported("models run on cpu and cuda, not on " + std::string(name(device.kind)));
  if (Status s = device::check_runnable(device); !s.ok()) return s;
  if (device.kind == DeviceKind::cpu) return {};
  if (options.batch_invariant)
    return unsupported(
        "batch-invariant: a GPU's products of weights sum in an order that depends on the number "
        "of rows, so a request's bits depend on its neighbours; --device cpu (backend cpu) keeps "
        "the promise");
  if (options.converted != nullptr)
    return unsupported(
        "a file of converted weights is for CPUs; on a GPU weights are converted on the card: "
        "leave it out");
  return {};
}

Result<std::unique_ptr<Ops>> make_device_ops(const DeviceInfo& device, Executor& executor,
                                             const CpuOpsOptions& options) {
  if (Status s = check_device_ops(device, options); !s.ok()) return s;
  if (device.kind == DeviceKind::cpu) return make_cpu_ops(executor, options);
  return cuda_ops(device, options.weights);
}

}  // namespace attune::model
