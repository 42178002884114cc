// The backend behind absorbed latent attention on CUDA: plans a batch as strips of query rows
// against spans of keys, and runs a kernel and a merge a layer. Names differ in the kernel they
// take.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::shared {

/// Over kernels/mla_decode/sm90: Hopper, pages of 64 tokens. Or refuses with the reason.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_hopper_latent(
    const BackendContext& context, const BackendDescriptor& descriptor);

/// Pages of any size: over kernels/mla_decode/sm90 on Hopper, over kernels/mla_decode/sm80 on other
/// cards of compute capability 8.0 and newer.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_gather_latent(
    const BackendContext& context, const BackendDescriptor& descriptor);

}  // namespace attune::backends::shared
