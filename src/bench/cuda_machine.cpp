#include "bench/cuda_machine_entry.hpp"
#include "registry/loader.hpp"

namespace attune::bench {

Result<std::unique_ptr<Machine>> cuda_machine(const DeviceInfo& device) {
  const Result<void*> symbol = registry::cuda_library_symbol(kCudaMachineSymbol);
  if (!symbol.ok()) return symbol.status();
  Result<std::unique_ptr<Machine>> made(internal_error("the library made no machine"));
  reinterpret_cast<CudaMachineFunction> (*symbol)(device, made);
  return made;
}

}  // namespace attune::bench
