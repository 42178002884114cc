// CUDA's answers as Status: the driver's text, its code's name, and who asked (layer base). For
// CUDA sources alone; layers device and kernels both need it, and neither may include the other.
#pragma once

#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

namespace attune::base::cuda {

/// After these the driver refuses everything until the process ends (CUDA runtime API, error
/// types).
inline bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
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

/// `what` names the kernel or the call. A sticky error (the context is lost, as after an illegal
/// address) says so: every later call of this process would fail with it.
[[nodiscard]] inline Status status_of(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  std::string text(what);
  text += ": ";
  text += cudaGetErrorString(error);
  text += " (";
  text += cudaGetErrorName(error);
  text += ")";
  if (is_sticky(error))
    text += "; the CUDA context is lost, every further CUDA call of this process fails: restart it";
  const bool memory = error == cudaErrorMemoryAllocation;
  return {memory ? StatusCode::out_of_memory : StatusCode::device_error, std::move(text)};
}

/// The same for a call whose failure is told here; takes it off the runtime's slot, so that it is
/// not met again by an innocent caller.
[[nodiscard]] inline Status call_status(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return status_of(error, what);
}

/// The same for the launch just made.
[[nodiscard]] inline Status launch_status(std::string_view kernel) {
  return status_of(cudaGetLastError(), kernel);
}

}  // namespace attune::base::cuda
