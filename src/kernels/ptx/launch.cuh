// How a kernel is named, started and given its shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace attune::kernels::ptx {

/// The block's dynamic shared memory. The two alignments in use have an array each: one name cannot
/// be declared with two.
template <int Alignment>
__device__ __forceinline__ unsigned char* dynamic_shared() {
  static_assert(Alignment == 128 || Alignment == 1024);
  if constexpr (Alignment == 128) {
    extern __shared__ __align__(128) unsigned char attune_dynamic_shared_128[];
    return attune_dynamic_shared_128;
  } else {
    extern __shared__ __align__(1024) unsigned char attune_dynamic_shared_1024[];
    return attune_dynamic_shared_1024;
  }
}

/// What cudaLaunchKernelExC and the attribute calls know a kernel by.
template <class... P>
const void* kernel_handle(void (*kernel)(P...)) {
  return reinterpret_cast<const void*>(kernel);
}

/// Errors are left for cudaGetLastError, as after any launch.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, A&&... arguments) {
  kernel<<<grid, block, shared_bytes, stream>>>(std::forward<A>(arguments)...);
}

}  // namespace attune::kernels::ptx
