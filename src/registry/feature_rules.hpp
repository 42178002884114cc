// The rules that ask for one feature each: what a spec or an option wants, and the words for it
// (layer registry).
#pragma once

#include <span>
#include <string>

#include <attune/registry.hpp>

namespace attune::registry {

struct FeatureRule {
  Feature feature;
  bool (*asked)(const AttentionSpec&, const SelectionOptions&);
  std::string (*have)(const AttentionSpec&, const SelectionOptions&);
};

[[nodiscard]] std::span<const FeatureRule> feature_rules();

}  // namespace attune::registry
