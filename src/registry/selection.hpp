// Choosing: offers in order, and one cache for both phases of every group (layer registry).
#pragma once

#include <attune/registry.hpp>

#include "registry/offers.hpp"

namespace attune::registry {

/// The entry that answers to `name`; a deprecated alias adds a warning. Unknown names get the
/// nearest ones.
[[nodiscard]] Result<const CatalogEntry*> find_entry(const Catalog& catalog, std::string_view name,
                                                     std::vector<std::string>& warnings);

[[nodiscard]] Selection choose(const Catalog& catalog, const ModelQuery& query,
                               const DeviceInfo& device, const SelectionOptions& options);

}  // namespace attune::registry
