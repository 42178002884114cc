#include "kernels/linear/table.hpp"

namespace attune::kernels::linear {
namespace {

constexpr const Kernel* kKernels[] = {&kAvx512Bf16Kernel, &kAvx512Kernel, &kAvx2Kernel,
                                      &kScalarKernel};

}  // namespace

std::span<const Kernel* const> kernels() { return kKernels; }

}  // namespace attune::kernels::linear
