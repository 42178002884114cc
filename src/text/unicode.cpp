#include "text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/utf8.hpp"

namespace attune::text {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool between(char32_t c, char32_t low, char32_t high) { return c >= low && c <= high; }

/// Symbols that carry the property Alphabetic: circled and squared Latin letters.
bool is_letter_like_symbol(char32_t c) {
  return between(c, 0x24B6, 0x24E9) || between(c, 0x1F130, 0x1F149) ||
         between(c, 0x1F150, 0x1F169) || between(c, 0x1F170, 0x1F189);
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/// Canonical ordering: a stable sort of each run of characters with a combining class.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  auto it = codes.begin();
  while (it != codes.end()) {
    it = std::find_if(it, codes.end(), [](auto c) { return combining_class(c) != 0; });
    const auto end = std::find_if(it, codes.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(it, end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    it = end;
  }
}

}  // namespace

bool is_white_space(char32_t c) {
  return between(c, 0x09, 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         between(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return between(c, '0', '9');
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return between(c, 0x21, 0x2F) || between(c, 0x3A, 0x40) || between(c, 0x5B, 0x60) ||
           between(c, 0x7B, 0x7E);
  }
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

bool is_nonspacing_mark(char32_t c) { return c >= 0x300 && category(c) == UTF8PROC_CATEGORY_MN; }

bool is_mark(char32_t c) {
  if (c < 0x300) return false;
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC ||
         is_letter_like_symbol(c);
}

bool is_cjk_ideograph(char32_t c) {
  return between(c, 0x4E00, 0x9FFF) || between(c, 0x3400, 0x4DBF) || between(c, 0x20000, 0x2A6DF) ||
         between(c, 0x2A700, 0x2B73F) || between(c, 0x2B740, 0x2B81F) ||
         between(c, 0x2B920, 0x2CEAF) || between(c, 0xF900, 0xFAFF) || between(c, 0x2F800, 0x2FA1F);
}

std::size_t leading_space(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const Utf8Char c = read_utf8(text.substr(length));
    if (!is_white_space(c.code)) break;
    length += c.length;
  }
  return length;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_white_space(read_utf8(text.substr(begin, end - begin)).code)) break;
    end = begin;
  }
  return text.size() - end;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = read_utf8(text);
    if (c.code == 0x130) {  // the one character whose lower case is two: i and a dot above
      out += "i\u0307";
    } else {
      append_utf8(out,
                  static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    }
    text.remove_prefix(c.length);
  }
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = read_utf8(text);
    if (c.code == 0xDF) {
      out += "SS";
    } else {
      append_utf8(out,
                  static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c.code))));
    }
    text.remove_prefix(c.length);
  }
  return out;
}

std::string normalize(std::string_view text, NormalForm form) {
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), ascii)) return std::string(text);

  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto how =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = read_utf8(text);
    constexpr utf8proc_ssize_t kLongest = 32;  // the longest decomposition is 18 (U+FDFA)
    utf8proc_int32_t parts[kLongest];
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts,
                                               kLongest, how, nullptr);
    codes.insert(codes.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, kLongest));
    text.remove_prefix(c.length);
  }
  order_marks(codes);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) {
    const auto count = utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    codes.resize(static_cast<std::size_t>(std::max<utf8proc_ssize_t>(count, 0)));
  }
  std::string out;
  out.reserve(codes.size());
  for (const auto code : codes) append_utf8(out, static_cast<char32_t>(code));
  return out;
}

}  // namespace attune::text
