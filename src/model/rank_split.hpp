// One rank of a model whose heads are split over several devices, as a model of its own (layer
// model): what each rank's backends see and its caches hold.
#pragma once

#include <attune/status.hpp>

#include "model/config.hpp"

namespace attune::model {

/// Query heads and heads of linear layers are divided. KV heads are, too, or each is kept by
/// several ranks where there are fewer of them; every rank keeps the latents whole. Heads that do
/// not divide are refused with the numbers.
[[nodiscard]] Result<ModelConfig> rank_of(const ModelConfig& model, int ranks);

}  // namespace attune::model
