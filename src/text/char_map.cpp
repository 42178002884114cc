#include "text/char_map.hpp"

#include <utf8proc.h>

#include <cstring>

#include "text/utf8.hpp"

namespace attune::text {
namespace {

// SentencePiece's maps hold no longer clusters.
constexpr std::size_t kLongestCluster = 5;

// Units of the double array (Yata's darts-clone): bits 0-7 label, 8 "a value hangs here",
// 10-30 offset, 9 offset is in steps of 256; a value unit has bit 31 set.
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }
std::uint32_t label_of(std::uint32_t unit) { return unit & (1u << 31 | 0xFFu); }
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1u) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & ~(1u << 31); }

std::size_t cluster_length(std::string_view text) {
  Utf8Char previous = read_utf8(text);
  std::size_t length = previous.length;
  utf8proc_int32_t state = 0;
  while (length < text.size()) {
    const Utf8Char c = read_utf8(text.substr(length));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous.code),
                                         static_cast<utf8proc_int32_t>(c.code), &state)) {
      break;
    }
    length += c.length;
    previous = c;
  }
  return length;
}

}  // namespace

Result<CharMap> CharMap::parse(std::string_view blob) {
  std::uint32_t bytes = 0;
  if (blob.size() >= sizeof bytes) std::memcpy(&bytes, blob.data(), sizeof bytes);
  if (bytes == 0 || bytes % 4 != 0 || blob.size() < sizeof bytes + std::size_t{bytes}) {
    return invalid_argument("tokenizer: the precompiled character map is truncated");
  }
  CharMap map;
  map.units_.resize(bytes / 4);
  std::memcpy(map.units_.data(), blob.data() + sizeof bytes, bytes);
  map.replacements_ = std::string(blob.substr(sizeof bytes + bytes));
  return map;
}

const char* CharMap::find(std::string_view text) const {
  std::size_t node = offset_of(units_[0]);
  for (const char byte : text) {
    if (byte == '\0') break;
    node ^= static_cast<unsigned char>(byte);
    if (node >= units_.size() || label_of(units_[node]) != static_cast<unsigned char>(byte)) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (node >= units_.size()) break;
    if (has_value(unit)) {
      const std::uint32_t at = value_of(units_[node]);
      return at < replacements_.size() ? replacements_.c_str() + at : nullptr;
    }
  }
  return nullptr;
}

std::string CharMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = cluster_length(text);
    const char* whole = length <= kLongestCluster ? find(text.substr(0, length)) : nullptr;
    if (whole) {
      out += whole;
    } else {
      for (std::string_view rest = text.substr(0, length); !rest.empty();) {
        const std::string_view one = rest.substr(0, read_utf8(rest).length);
        const char* replacement = find(one);
        if (replacement)
          out += replacement;
        else
          out += one;
        rest.remove_prefix(one.size());
      }
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace attune::text
