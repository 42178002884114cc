// The card that a CUDA backend is made for, and the refusal of one that its kernels do not run on.
#pragma once

#include <string_view>

#include <attune/backend.hpp>

#include "device/cuda/memory.hpp"

namespace attune::backends::shared::cuda {

/// The context's card, made current, or why not. For kernels of compute capability 8.0, which later
/// cards run too.
[[nodiscard]] Result<device::cuda::CardFacts> enter_card(std::string_view backend,
                                                         const BackendContext& context);

/// Likewise, for kernels of Hopper's own instructions.
[[nodiscard]] Result<device::cuda::CardFacts> enter_hopper(std::string_view backend,
                                                           const BackendContext& context);

}  // namespace attune::backends::shared::cuda
