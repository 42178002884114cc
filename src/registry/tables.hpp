// The catalog and the defaults as text: pages for docs/, JSON for programs, lines for --help (layer
// registry). Nothing about a backend is typed twice.
#pragma once

#include <span>
#include <string>

#include <attune/descriptor.hpp>

namespace attune::registry {

using Descriptors = std::span<const BackendDescriptor* const>;

/// docs/backends.md
[[nodiscard]] std::string backends_markdown(Descriptors backends);
/// docs/selection.md
[[nodiscard]] std::string selection_markdown();
/// An array of objects, one a backend, with every field of its descriptor.
[[nodiscard]] std::string backends_json(Descriptors backends);
/// One line a backend, for --help.
[[nodiscard]] std::string backends_help(Descriptors backends);

}  // namespace attune::registry
