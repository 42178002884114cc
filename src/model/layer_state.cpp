#include "model/layer_state.hpp"

#include <algorithm>

#include "model/compressor.hpp"
#include "model/linear_families.hpp"

namespace attune::model {

bool keeps_states(const ModelConfig& config) {
  return !config.linear.empty() ||
         std::ranges::any_of(config.attention,
                             [](const AttentionConfig& a) { return a.compress_ratio > 0; });
}

cache::StateShape layer_state(const ModelConfig& config, int layer, DType conv_dtype) {
  if (config.linear_of(layer) != nullptr) return state_shape(config, layer, conv_dtype);
  const AttentionConfig* attention = config.attention_of(layer);
  return attention != nullptr && attention->compress_ratio > 0 ? compressor_state(*attention)
                                                               : cache::StateShape{};
}

}  // namespace attune::model
