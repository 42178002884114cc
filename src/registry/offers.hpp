// Who may serve a group and phase, in order, before and after the rules (layer registry).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <attune/registry.hpp>

#include "registry/catalog.hpp"
#include "registry/condition.hpp"
#include "registry/device_class.hpp"
#include "registry/rules.hpp"

namespace attune::registry {

struct Catalog {
  std::span<const CatalogEntry> entries;
  /// Whether a factory for this kind of device is linked in, or a file that holds one is there.
  std::function<bool(const CatalogEntry&, DeviceKind)> can_make;
};

/// Everything a selection is made from, apart from the group.
struct Setting {
  const Catalog& catalog;
  const DeviceInfo& device;
  const SelectionOptions& options;
  ModelFacts model;
  DeviceClass where;
};

struct Offer {
  const CatalogEntry* entry = nullptr;
  ChosenBy by = ChosenBy::nobody;
  std::string why;
  std::int32_t page_size = 0;  ///< a model rule's wish; 0 = none
  Verdict verdict;

  [[nodiscard]] std::string name() const { return std::string(entry->descriptor->name); }
};

/// The one offer of a name that the user gave.
[[nodiscard]] Offer named_offer(const Setting& setting, const CatalogEntry& entry, std::string why,
                                const AttentionSpec& spec, Phase phase);

/// Model rule, then the preference row, each judged.
[[nodiscard]] std::vector<Offer> automatic_offers(const Setting& setting, const AttentionSpec& spec,
                                                  Phase phase);

/// Every catalog entry that is not among `offers`, judged.
[[nodiscard]] std::vector<Offer> other_offers(const Setting& setting,
                                              const std::vector<Offer>& offers,
                                              const AttentionSpec& spec, Phase phase);

}  // namespace attune::registry
