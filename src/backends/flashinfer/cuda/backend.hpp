// The CUDA side of flashinfer: libattune_cuda.so's table names it.
#pragma once

#include <memory>

#include <attune/backend.hpp>

#include "backends/shared/cuda/paged_attention.hpp"

namespace attune::backends::flashinfer {

/// Makes the backend on the context's device; the first CUDA call of the process may be here.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context);

/// With other rules than its own: tests take every level they can, or the plain kernel only.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda_with(const BackendContext& context,
                                                              const shared::PagedOptions& options);

}  // namespace attune::backends::flashinfer
