#include "device/cuda/status.hpp"

#include <string>

namespace attune::device::cuda {
namespace {

// After these the driver refuses everything until the process ends (CUDA runtime API, error types).
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
  }
}

}  // namespace

Status status_of(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  std::string text(what);
  text += ": ";
  text += cudaGetErrorString(error);
  text += " (";
  text += cudaGetErrorName(error);
  text += ")";
  if (is_sticky(error)) {
    text += "; the CUDA context is lost, every further CUDA call of this process fails: restart it";
  }
  const bool memory = error == cudaErrorMemoryAllocation;
  return {memory ? StatusCode::out_of_memory : StatusCode::device_error, std::move(text)};
}

Status call_status(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return status_of(error, what);
}

Status launch_status(std::string_view kernel) { return status_of(cudaGetLastError(), kernel); }

}  // namespace attune::device::cuda
