// The CUDA runtime's launches, streams, graphs and memory over emulated blocks. Everything happens
// when it is asked for, except on a stream that is being captured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace attune::emulated {

/// From a kernel's arguments, as cudaLaunchKernelExC takes them, to one thread's run.
using Bind = std::function<std::function<void()>(void** arguments)>;
void know_kernel(const void* handle, Bind bind);

/// Host work in a stream's order; recorded while the stream is captured.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// An error is kept for cudaGetLastError, as after any launch.
void launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            std::function<void()> thread, unsigned side_by_side = 1);

}  // namespace attune::emulated
