// A capability row as named texts, in the order of its members: what every table renders (layer
// registry).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <attune/descriptor.hpp>

namespace attune::registry {

struct Field {
  std::string_view name;
  std::vector<std::string> values;  ///< empty = any
};

[[nodiscard]] std::vector<Field> fields_of(const Capability& row);

/// "a, b", or `otherwise` where there are none.
[[nodiscard]] std::string comma_list(const std::vector<std::string>& words,
                                     std::string_view otherwise = "");

/// "9.0", "10.0-10.3"
[[nodiscard]] std::string text_of(const SmRange& range);
/// "128", "576/512"
[[nodiscard]] std::string text_of(const HeadDims& dims);

}  // namespace attune::registry
