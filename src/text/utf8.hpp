// UTF-8 in both directions. Text inside this layer is always valid UTF-8; broken bytes are repaired
// once, at the door, by to_valid_utf8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune::text {

inline constexpr char32_t kReplacement = 0xFFFD;

/// One decoded character: its code point and how many bytes it took.
struct Utf8Char {
  char32_t code = kReplacement;
  unsigned length = 1;
  bool valid = false;
};

/// Reads the character at the front of `bytes` (not empty). For broken input `length` is the
/// maximal ill-formed subpart of Unicode section 3.9, so that one replacement stands for it.
[[nodiscard]] Utf8Char read_utf8(std::string_view bytes);

void append_utf8(std::string& out, char32_t code);

[[nodiscard]] bool is_valid_utf8(std::string_view bytes);

/// Replaces each maximal ill-formed subpart by U+FFFD, as Rust's from_utf8_lossy and Python's
/// errors="replace" do.
[[nodiscard]] std::string to_valid_utf8(std::string_view bytes);

/// Length of the prefix of `bytes` that can be shown now: everything but a trailing sequence that
/// is unfinished and may still become valid.
[[nodiscard]] std::size_t showable_prefix(std::string_view bytes);

}  // namespace attune::text
