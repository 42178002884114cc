#include "conformance/cuda_memory.hpp"

#include <dlfcn.h>

#include <string>

#include "base/join.hpp"
#include "conformance/cuda_memory_entry.hpp"
#include "registry/loader.hpp"

namespace attune::conformance {

Result<std::unique_ptr<DeviceMemory>> cuda_memory(const DeviceInfo& device) {
  const std::string path = registry::find_cuda_library();
  if (path.empty())
    return unsupported(
        "the suite needs libattune_cuda.so beside this program: build with "
        "-DATTUNE_CUDA=on");
  if (const auto entry = registry::open_plugin(path); !entry.ok()) return entry.status();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library == nullptr ? nullptr : dlsym(library, kCudaMemorySymbol);
  if (symbol == nullptr)
    return Status{StatusCode::plugin_error, base::join(path, " has no ", kCudaMemorySymbol,
                                                       ": build it together with this program")};
  Result<std::unique_ptr<DeviceMemory>> made(internal_error("the library made no memory"));
  reinterpret_cast<CudaMemoryFunction>(symbol)(device, made);
  return made;
}

}  // namespace attune::conformance
