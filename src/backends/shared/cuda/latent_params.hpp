// What launches of the latent kernels take from a call.
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "kernels/append_kv/sm80/launch.hpp"
#include "kernels/mla_decode/params.hpp"
#include "plan/latent_work.hpp"

namespace attune::backends::shared::cuda {

/// A call and the shape of its blocks; the plan's lists and the way through the cache are for the
/// backend to add.
[[nodiscard]] kernels::mla_decode::Params latent_params(const AttentionSpec& spec,
                                                        const attention::BatchFacts& facts,
                                                        const plan::LatentShape& shape,
                                                        const LayerCall& call);

/// Rows of `columns` numbers, one a token, `in`, to their slots of `cache` [pages, page_size, columns].
/// No values: those of latents are a slice of the keys.
[[nodiscard]] kernels::append_kv::sm80::Params latent_append(const LayerCall& call,
                                                             const TensorView& in,
                                                             const TensorView& cache, int columns,
                                                             float scale, std::int32_t page_size);

}  // namespace attune::backends::shared::cuda
