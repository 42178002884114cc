// Families of linear layers from outside this library (layer model): whoever embeds it registers a
// record by name, and models whose config the record recognises run, in the hybrid scheme of the
// families in tree.
//
//   LinearFamilies families;
//   families.add({.name = "average", .backend = "average", .matches = …, .build = …, …});
//   auto checkpoint = open_checkpoint(path, &families);    // then as any other
//
// The backend comes from a plugin or the catalog. It speaks the LinearCall of the variant that
// `build` gives its LinearConfig. A plugin that brings no code of ours describes its families
// instead (<attune/linear_family.hpp>, described_family.hpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <attune/registry.hpp>
#include <attune/status.hpp>

#include "cache/state_pool.hpp"
#include "model/config.hpp"
#include "model/layer_part.hpp"

namespace attune::model {

class ConfigDraft;
class ConfigReader;

struct LinearFamily {
  std::string name;     ///< LinearConfig::family of its layers, and the word that reports print
  std::string backend;  ///< serves them unless the user names another
  /// Whether a config.json is this family's; asked before the families in tree.
  std::function<bool(const ConfigReader& config)> matches;
  /// Fills the config, as the builders in tree do.
  std::function<void(ConfigDraft& draft)> build;
  /// What one request keeps of one layer.
  std::function<cache::StateShape(const LinearConfig& layer)> state;
  /// The layer's arithmetic around its backend; failures are kept in `loader`.
  std::function<std::unique_ptr<LayerPart>(Loader& loader, int layer)> mixer;
};

class LinearFamilies {
 public:
  /// Refuses a name that is taken and a record that lacks something.
  Status add(LinearFamily family);

  /// nullptr where no such family is registered.
  [[nodiscard]] const LinearFamily* find(std::string_view name) const;
  /// The first whose predicate holds; nullptr = none does.
  [[nodiscard]] const LinearFamily* matching(const ConfigReader& config) const;

 private:
  std::vector<std::unique_ptr<LinearFamily>> families_;
};

/// Layers of families from outside go to their own backend, behind what the user says of them.
void name_family_backends(const ModelConfig& config, SelectionOptions& options);

/// What one request keeps of a layer of a variant in tree.
[[nodiscard]] cache::StateShape state_of_variant(const LinearConfig& layer);

/// The state of `layer`, which has a linear mixer, by its family or by its variant.
/// `conv_dtype`: of a convolution's history.
[[nodiscard]] cache::StateShape state_shape(const ModelConfig& config, int layer, DType conv_dtype);

}  // namespace attune::model
