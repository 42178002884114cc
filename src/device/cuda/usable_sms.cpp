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

/// Who a stream's kernels belong to.
UsableSms contexts_of(const Driver& driver, Stream stream) {
  UsableSms of;
  if (CUcontext context = nullptr;
      driver.current != nullptr && driver.current(&context) == CUDA_SUCCESS)
    of.context = context;
  if (CUgreenCtx green = nullptr; driver.green_of_stream != nullptr &&
                                  driver.green_of_stream(native(stream), &green) == CUDA_SUCCESS)
    of.green = green;
  return of;
}

const Driver& driver() {
  static const Driver found;
  return found;
}

void count(const Driver& driver, int num_sms, UsableSms& usable) {
  usable.count = num_sms;
  const auto limit = [&](CUresult answer, const CUdevResource& resource) {
    if (answer == CUDA_SUCCESS)
      usable.count = std::min(usable.count, static_cast<int>(resource.sm.smCount));
  };
  CUdevResource resource{};
  if (usable.context != nullptr && driver.of_context != nullptr)
    limit(driver.of_context(static_cast<CUcontext>(usable.context), &resource,
                            CU_DEV_RESOURCE_TYPE_SM),
          resource);
  if (usable.green != nullptr && driver.of_green != nullptr)
    limit(
        driver.of_green(static_cast<CUgreenCtx>(usable.green), &resource, CU_DEV_RESOURCE_TYPE_SM),
        resource);
}

}  // namespace

UsableSms usable_sms(Stream stream, int num_sms) {
  UsableSms usable = contexts_of(driver(), stream);
  count(driver(), num_sms, usable);
  return usable;
}

int usable_sms(const UsableSms& known, Stream stream, int num_sms) {
  UsableSms now = contexts_of(driver(), stream);
  if (now.context == known.context && now.green == known.green) return known.count;
  count(driver(), num_sms, now);
  return now.count;
}

}  // namespace attune::device::cuda
