#include "conformance/cuda_memory.hpp"

#include "conformance/cuda_memory_entry.hpp"
#include "registry/loader.hpp"

namespace attune::conformance {

Result<std::unique_ptr<DeviceMemory>> cuda_memory(const DeviceInfo& device) {
  const Result<void*> symbol = registry::cuda_library_symbol(kCudaMemorySymbol);
  if (!symbol.ok()) return symbol.status();
  Result<std::unique_ptr<DeviceMemory>> made(internal_error("the library made no memory"));
  reinterpret_cast<CudaMemoryFunction>(*symbol)(device, made);
  return made;
}

}  // namespace attune::conformance
