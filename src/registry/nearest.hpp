// "flashinfr" -> flashinfer: the names nearest to a misspelt one (layer registry).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune::registry {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (Damerau
/// 1964, restricted).
[[nodiscard]] int edit_distance(std::string_view a, std::string_view b);

/// At most three of `names`, nearest first; only such as a slip of the finger explains.
[[nodiscard]] std::vector<std::string_view> nearest(std::string_view word,
                                                    std::span<const std::string_view> names);

}  // namespace attune::registry
