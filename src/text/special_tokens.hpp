// Which tokens end a generation, by their names in the vocabularies in use.
#pragma once

#include <string_view>

namespace attune::text {

/// True of end-of-turn and end-of-text tokens, whatever the family.
[[nodiscard]] bool ends_generation(std::string_view piece);

}  // namespace attune::text
