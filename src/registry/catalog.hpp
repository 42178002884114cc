// The catalog: every backend this project knows, built or not (layer registry).
#pragma once

#include <span>
#include <string_view>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::registry {

struct CatalogEntry {
  const BackendDescriptor* descriptor = nullptr;
  BackendFactory make = nullptr;  ///< null: not built, or made by an accelerator's library
  std::string_view folder{};      ///< in-tree: its folder; the registry checks that it is the name
  std::string_view plugin{};      ///< the file it came from; empty = in-tree
};

/// The in-tree rows, in the order of backends/catalog.inc.
[[nodiscard]] std::span<const CatalogEntry> catalog();

/// Whether `entry` answers to `name`; `deprecated` tells whether that is a deprecated alias.
[[nodiscard]] bool answers_to(const BackendDescriptor& descriptor, std::string_view name,
                              bool& deprecated);

}  // namespace attune::registry
