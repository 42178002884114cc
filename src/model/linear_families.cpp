#include "model/linear_families.hpp"

#include <algorithm>
#include <utility>

namespace attune::model {

Status LinearFamilies::add(LinearFamily family) {
  if (family.name.empty() || family.backend.empty())
    return invalid_argument("a linear family needs a name and a backend, have '" + family.name +
                            "' and '" + family.backend + "'");
  if (find(family.name) != nullptr)
    return invalid_argument("the linear family '" + family.name + "' is registered already");
  if (!family.matches || !family.build || !family.state || !family.mixer)
    return invalid_argument("the linear family '" + family.name +
                            "' lacks its predicate, builder, state shapes or mixer");
  families_.push_back(std::make_unique<LinearFamily>(std::move(family)));
  return {};
}

const LinearFamily* LinearFamilies::find(std::string_view name) const {
  for (const auto& family : families_)
    if (family->name == name) return family.get();
  return nullptr;
}

const LinearFamily* LinearFamilies::matching(const ConfigReader& config) const {
  for (const auto& family : families_)
    if (family->matches(config)) return family.get();
  return nullptr;
}

void name_family_backends(const ModelConfig& config, SelectionOptions& options) {
  if (config.families == nullptr) return;
  for (int layer = 0; layer < config.num_layers(); ++layer) {
    const LinearConfig* linear = config.linear_of(layer);
    if (linear == nullptr || linear->family.empty()) continue;
    const bool named = std::ranges::any_of(options.layers, [&](const LayerOverride& o) {
      return o.first <= layer && layer <= o.last;
    });
    if (named) continue;
    options.layers.push_back(
        {.first = layer, .last = layer, .backend = config.families->find(linear->family)->backend});
  }
}

cache::StateShape state_of_variant(const LinearConfig& layer) {
  cache::StateShape shape;
  if (layer.variant != Variant::short_conv) {
    shape.heads = layer.num_v_heads;
    shape.dim_v = layer.head_dim_v;
    shape.dim_k = layer.head_dim_k;
  }
  if (layer.conv_kernel > 1) {
    shape.conv_channels = layer.conv_dim;
    shape.conv_history = layer.conv_kernel - 1;
  }
  return shape;
}

cache::StateShape state_shape(const ModelConfig& config, int layer, DType conv_dtype) {
  const LinearConfig& linear = *config.linear_of(layer);
  cache::StateShape shape = linear.family.empty()
                                ? state_of_variant(linear)
                                : config.families->find(linear.family)->state(linear);
  shape.conv_dtype = conv_dtype;
  return shape;
}

}  // namespace attune::model
