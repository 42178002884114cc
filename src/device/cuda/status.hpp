// CUDA's answers as Status: the driver's text, its code's name, and what we were doing (layer
// device).
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>

namespace attune::device::cuda {

/// `what` names the kernel or the call. A sticky error (the context is lost, as after an illegal
/// address) says so: every later call of this process would fail with it.
[[nodiscard]] Status status_of(cudaError_t error, std::string_view what);

/// The same for a call whose failure is told here; takes it off the runtime's slot.
[[nodiscard]] Status call_status(cudaError_t error, std::string_view what);

/// The same for the launch just made; takes the error off the runtime's slot, so that a failed
/// launch of ours is not met again by an innocent caller.
[[nodiscard]] Status launch_status(std::string_view kernel);

}  // namespace attune::device::cuda
