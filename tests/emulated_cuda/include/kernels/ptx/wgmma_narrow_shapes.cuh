// kernels/ptx/wgmma_narrow_shapes.cuh in plain C++: any N is as good as another.
#pragma once

#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::ptx::narrow {

using ptx::wgmma_rs;
using ptx::wgmma_ss;

}  // namespace attune::kernels::ptx::narrow
