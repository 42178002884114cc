// What a latent kernel's launch takes from a call and from the shape of its blocks. The plan's lists
// and the way through the cache are for the backend to add.
#pragma once

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "kernels/mla_decode/params.hpp"
#include "plan/latent_work.hpp"

namespace attune::backends::shared::cuda {

[[nodiscard]] kernels::mla_decode::Params latent_params(const AttentionSpec& spec,
                                                        const attention::BatchFacts& facts,
                                                        const plan::LatentShape& shape,
                                                        const LayerCall& call);

}  // namespace attune::backends::shared::cuda
