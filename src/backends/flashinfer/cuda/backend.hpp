// The CUDA side of flashinfer: libattune_cuda.so's table names it.
#pragma once

#include <memory>

#include <attune/backend.hpp>

#include "plan/cascade.hpp"

namespace attune::backends::flashinfer {

/// Makes the backend on the context's device; the first CUDA call of the process may be here.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context);

/// With another rule for shared prefixes than its cost test: tests take every level they can.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda_with_cascade(const BackendContext& context,
                                                                      plan::CascadeMode cascade);

}  // namespace attune::backends::flashinfer
