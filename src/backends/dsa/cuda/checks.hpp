// What dsa's kernels cannot, asked before anything of CUDA is touched.
#pragma once

#include <attune/backend.hpp>
#include <attune/status.hpp>

namespace attune::backends::dsa {

[[nodiscard]] Status check_context(const BackendContext& context);

}  // namespace attune::backends::dsa
