#include "model/device_ops.hpp"

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

Result<std::unique_ptr<Ops>> make_device_ops(const DeviceInfo& device, Executor& executor,
                                             const CpuOpsOptions& options) {
  switch (device.kind) {
    case DeviceKind::cpu: return make_cpu_ops(executor, options);
    case DeviceKind::cuda:
      if (options.converted != nullptr)
        return unsupported(
            "a file of converted weights is for CPUs; on a GPU weights are converted on the card: "
            "leave it out");
      return cuda_ops(device, options.weights);
    default:
      return unsupported("models run on cpu and cuda, not on " + std::string(name(device.kind)));
  }
}

}  // namespace attune::model
