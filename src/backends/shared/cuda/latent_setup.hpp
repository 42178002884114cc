// The latent kernels a card gets for a context, and the rules their work is planned by.
#pragma once

#include <cstdint>
#include <functional>

#include <cuda_runtime_api.h>

#include <attune/backend.hpp>

#include "device/cuda/memory.hpp"
#include "kernels/mla_decode/params.hpp"
#include "plan/latent_work.hpp"

namespace attune::backends::shared::cuda {

/// How a request names its keys.
enum class LatentKeys : std::uint8_t {
  pages,  ///< of the context's size
  lists,  ///< a slot a key; every query token is a request, the device knows how long its list is
  pools,  ///< likewise, in two pools; keys are values
};

struct LatentSetup {
  std::function<Status(const kernels::mla_decode::Grid&, const kernels::mla_decode::Params&,
                       cudaStream_t)>
      launch;
  plan::LatentRules rules;
  int merge_blocks = 0;
};

/// Hopper's kernels where the card and the latents' width are what they were made for, those of
/// older cards' instructions elsewhere.
[[nodiscard]] Result<LatentSetup> latent_setup(const BackendContext& context,
                                               const device::cuda::CardFacts& card,
                                               LatentKeys keys);

}  // namespace attune::backends::shared::cuda
