#include "text/byte_alphabet.hpp"

#include <array>

#include "text/utf8.hpp"

namespace attune::text {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

constexpr std::array<char16_t, 256> kCharOfByte = [] {
  std::array<char16_t, 256> table{};
  char16_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[byte] = stands_for_itself(byte) ? static_cast<char16_t>(byte) : next++;
  }
  return table;
}();

constexpr unsigned kAlphabetEnd = 0x100 + 68;

constexpr std::array<std::int16_t, kAlphabetEnd> kByteOfChar = [] {
  std::array<std::int16_t, kAlphabetEnd> table{};
  for (auto& entry : table) entry = -1;
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[kCharOfByte[byte]] = static_cast<std::int16_t>(byte);
  }
  return table;
}();

}  // namespace

char32_t byte_to_char(unsigned char byte) { return kCharOfByte[byte]; }

std::optional<unsigned char> char_to_byte(char32_t c) {
  if (c >= kAlphabetEnd || kByteOfChar[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(kByteOfChar[c]);
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) append_utf8(out, byte_to_char(static_cast<unsigned char>(byte)));
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const Utf8Char c = read_utf8(piece);
    const auto byte = char_to_byte(c.code);
    if (!byte) return std::nullopt;
    out.push_back(static_cast<char>(*byte));
    piece.remove_prefix(c.length);
  }
  return out;
}

}  // namespace attune::text
