// kernels/ptx/launch.cuh in plain C++: a handle is the kernel's address, and the emulated runtime
// learns how to call it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

#include "machine.hpp"
#include "runtime.hpp"

namespace attune::kernels::ptx {

template <int Alignment>
unsigned char* dynamic_shared() {
  static_assert(Alignment == 128 || Alignment == 1024);
  return emulated::shared_memory();
}

template <class... P>
const void* kernel_handle(void (*kernel)(P...)) {
  const auto handle = reinterpret_cast<const void*>(kernel);
  emulated::know_kernel(handle, [kernel](void** arguments) -> std::function<void()> {
    return [&]<std::size_t... I>(std::index_sequence<I...>)->std::function<void()> {
      std::tuple<P...> copy{*static_cast<P*>(arguments[I])...};
      return [kernel, copy] { std::apply(kernel, copy); };
    }
    (std::index_sequence_for<P...>{});
  });
  return handle;
}

template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, A&&... arguments) {
  std::tuple<P...> copy{static_cast<P>(std::forward<A>(arguments))...};
  emulated::launch(stream, grid, block, shared_bytes, [kernel, copy] { std::apply(kernel, copy); });
}

}  // namespace attune::kernels::ptx
