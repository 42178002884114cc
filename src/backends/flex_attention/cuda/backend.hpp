// The CUDA side of flex_attention: libattune_cuda.so's table names it.
#pragma once

#include <memory>

#include <attune/backend.hpp>

namespace attune::backends::flex_attention {

/// Makes the backend on the context's device; the first CUDA call of the process may be here.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context);

}  // namespace attune::backends::flex_attention
