#include "text/utf8.hpp"

#include <algorithm>

namespace attune::text {
namespace {

/// What the Unicode table of well-formed sequences (3-7) says about a lead byte.
struct Lead {
  unsigned length;
  unsigned char second_low, second_high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

/// How many bytes at the front follow the table, at most lead.length.
unsigned well_formed_bytes(std::string_view bytes, const Lead& lead) {
  unsigned count = 1;
  while (count < lead.length && count < bytes.size()) {
    const auto byte = static_cast<unsigned char>(bytes[count]);
    const unsigned char low = count == 1 ? lead.second_low : 0x80;
    const unsigned char high = count == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) break;
    ++count;
  }
  return count;
}

}  // namespace

Utf8Char read_utf8(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes.front());
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {};
  const unsigned count = well_formed_bytes(bytes, lead);
  if (count < lead.length) return {kReplacement, count, false};
  char32_t code = first & (0x7Fu >> lead.length);
  for (unsigned i = 1; i < count; ++i) {
    code = code << 6 | (static_cast<unsigned char>(bytes[i]) & 0x3Fu);
  }
  return {code, count, true};
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
    return;
  }
  const unsigned length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  constexpr unsigned char kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out.push_back(static_cast<char>(kLead[length] | code >> 6 * (length - 1)));
  for (unsigned i = length - 1; i-- > 0;) {
    out.push_back(static_cast<char>(0x80 | (code >> 6 * i & 0x3F)));
  }
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Char c = read_utf8(bytes);
    if (!c.valid) return false;
    bytes.remove_prefix(c.length);
  }
  return true;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Char c = read_utf8(bytes);
    if (c.valid) {
      out.append(bytes.substr(0, c.length));
    } else {
      append_utf8(out, kReplacement);
    }
    bytes.remove_prefix(c.length);
  }
  return out;
}

std::size_t showable_prefix(std::string_view bytes) {
  const std::size_t longest_tail = std::min<std::size_t>(3, bytes.size());
  for (std::size_t tail = 1; tail <= longest_tail; ++tail) {
    const std::string_view rest = bytes.substr(bytes.size() - tail);
    const Lead lead = lead_of(static_cast<unsigned char>(rest.front()));
    if (lead.length > tail && well_formed_bytes(rest, lead) == tail) return bytes.size() - tail;
  }
  return bytes.size();
}

}  // namespace attune::text
