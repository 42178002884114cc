// The number of a token.
#pragma once

#include <cstdint>

namespace attune::text {

using TokenId = std::int32_t;

}  // namespace attune::text
