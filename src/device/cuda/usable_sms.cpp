#include "device/cuda/usable_sms.hpp"

#include <algorithm>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "device/cuda/memory.hpp"

namespace attune::device::cuda {
namespace {

/// The driver's functions by name; nullptr where it is too old to know parts of cards at all.
template <class Function>
Function* driver_function(const char* symbol) {
  constexpr unsigned kVersion = 12040;  // what first had them all
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion(symbol, &function, kVersion, cudaEnableDefault, &found) !=
      cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Function*>(function) : nullptr;
}

struct Driver {
  decltype(cuStreamGetGreenCtx)* green_of_stream =
      driver_function<decltype(cuStreamGetGreenCtx)>("cuStreamGetGreenCtx");
  decltype(cuGreenCtxGetDevResource)* of_green =
      driver_function<decltype(cuGreenCtxGetDevResource)>("cuGreenCtxGetDevResource");
  decltype(cuCtxGetDevResource)* of_context =
      driver_function<decltype(cuCtxGetDevResource)>("cuCtxGetDevResource");
  decltype(cuCtxGetCurrent)* current =
      driver_function<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
};

}  // namespace

int usable_sms(Stream stream, int num_sms) {
  static const Driver driver;
  int usable = num_sms;
  const auto limit = [&](CUresult answer, const CUdevResource& resource) {
    if (answer == CUDA_SUCCESS) usable = std::min(usable, static_cast<int>(resource.sm.smCount));
  };
  CUdevResource resource{};
  if (CUcontext context = nullptr; driver.current != nullptr && driver.of_context != nullptr &&
                                   driver.current(&context) == CUDA_SUCCESS && context != nullptr)
    limit(driver.of_context(context, &resource, CU_DEV_RESOURCE_TYPE_SM), resource);
  if (CUgreenCtx green = nullptr; driver.green_of_stream != nullptr && driver.of_green != nullptr &&
                                  driver.green_of_stream(native(stream), &green) == CUDA_SUCCESS &&
                                  green != nullptr)
    limit(driver.of_green(green, &resource, CU_DEV_RESOURCE_TYPE_SM), resource);
  return usable;
}

}  // namespace attune::device::cuda
