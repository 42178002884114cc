// The backend behind absorbed latent attention on CUDA: plans a batch as strips of query rows
// against spans of keys, and runs a kernel and a merge a layer. Names differ in the kernel they
// take.
#pragma once

#include <cstdint>
#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::shared {

/// Over kernels/mla_decode/sm90: Hopper, pages of 64 tokens. Or refuses with the reason.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_hopper_latent(
    const BackendContext& context, const BackendDescriptor& descriptor);

enum class LatentWidths : std::uint8_t {
  deepseek,  ///< 512 + 64 columns
  any,       ///< multiples of 8, 576 at most
};

/// Pages of any size: 512 + 64 columns on Hopper over kernels/mla_decode/sm90, everything else over
/// kernels/mla_decode/sm80, which asks for compute capability 8.0.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_gather_latent(
    const BackendContext& context, const BackendDescriptor& descriptor, LatentWidths widths);

}  // namespace attune::backends::shared
