// Base64 (RFC 4648), as JSON files carry binary tables.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attune::text {

/// Nothing when `text` has a character outside the alphabet.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace attune::text
