// The alphabet of byte-level BPE (GPT-2): each byte has one visible character, so that a vocabulary
// of bytes can be written as text. Printable Latin-1 stands for itself, the other 68 bytes for
// U+0100 onwards.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attune::text {

[[nodiscard]] char32_t byte_to_char(unsigned char byte);
[[nodiscard]] std::optional<unsigned char> char_to_byte(char32_t c);

/// "Ġcafé" form of raw bytes.
[[nodiscard]] std::string to_byte_alphabet(std::string_view bytes);

/// The bytes a piece stands for; nothing when one of its characters is outside the alphabet.
[[nodiscard]] std::optional<std::string> from_byte_alphabet(std::string_view piece);

}  // namespace attune::text
