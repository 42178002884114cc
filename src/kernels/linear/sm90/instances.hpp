// The instances of scan and scores, a translation unit for the scans (layer kernels).
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "kernels/linear/sm90/params.hpp"

namespace attune::kernels::linear::sm90 {

/// One compiled kernel over PromptParams.
struct PromptKernel {
  void (*function)(PromptParams) = nullptr;
  int threads = 0;
  std::size_t shared_bytes = 0;
};

/// function == nullptr: none was compiled.
[[nodiscard]] PromptKernel scan_of(Family family, int key_columns, int slice);

/// Calls visit(kernel) for each scan.
void each_scan(void (*visit)(const PromptKernel& kernel, void* context), void* context);

}  // namespace attune::kernels::linear::sm90
