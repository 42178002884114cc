// What a descriptor from outside must say before selection, help and the suite read it (layer
// registry). Those in tree hold to the same, by a test.
#pragma once

#include <string>

#include <attune/descriptor.hpp>

namespace attune::registry {

/// What is wrong with it; empty = nothing.
[[nodiscard]] std::string complaint_about(const BackendDescriptor& descriptor);

}  // namespace attune::registry
