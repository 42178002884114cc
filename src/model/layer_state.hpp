// What a layer keeps of a request besides pages of keys (layer model): recurrent states, and the tail
// that a compressor has not passed yet.
#pragma once

#include <attune/tensor.hpp>

#include "cache/state_pool.hpp"
#include "model/config.hpp"

namespace attune::model {

[[nodiscard]] bool keeps_states(const ModelConfig& config);

/// Empty where the layer keeps none. `conv_dtype`: of a linear layer's convolution inputs.
[[nodiscard]] cache::StateShape layer_state(const ModelConfig& config, int layer, DType conv_dtype);

}  // namespace attune::model
