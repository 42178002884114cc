// From Oniguruma's pattern language to PCRE2's.
#pragma once

#include <string>
#include <string_view>

#include <attune/status.hpp>

namespace attune::text {

/// Rewrites the classes that the two engines define differently (\s, \S, \w, \W, \h, \H) and
/// refuses nested sets and set intersections, which PCRE2 would silently read as ordinary
/// characters.
Result<std::string> to_pcre2(std::string_view pattern);

}  // namespace attune::text
