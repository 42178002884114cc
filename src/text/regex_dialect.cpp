#include "text/regex_dialect.hpp"

#include <algorithm>
#include <iterator>

namespace attune::text {
namespace {

// PCRE2's \s also takes U+180E, and its \w leaves out marks; both differ from the Unicode
// definitions that tokenizers were made with.
constexpr std::string_view kSpace =
    "\\t-\\r "
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHex = "0-9A-Fa-f";

// In PCRE2 \p{Han} asks for the script extensions, in Oniguruma for the script.
constexpr std::string_view kScripts[] = {
    "Arabic",  "Armenian", "Bengali",  "Bopomofo", "Cyrillic", "Devanagari", "Georgian",
    "Greek",   "Gujarati", "Gurmukhi", "Han",      "Hangul",   "Hebrew",     "Hiragana",
    "Kannada", "Katakana", "Khmer",    "Lao",      "Latin",    "Malayalam",  "Mongolian",
    "Myanmar", "Tamil",    "Telugu",   "Thai",     "Tibetan"};

std::string_view members_of(char shorthand) {
  switch (shorthand) {
    case 's':
    case 'S': return kSpace;
    case 'w':
    case 'W': return kWord;
    case 'h':
    case 'H': return kHex;
    default: return {};
  }
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        if (Status s = escape(); !s.ok()) return s;
      } else if (in_set_) {
        if (Status s = inside_set(c); !s.ok()) return s;
      } else {
        if (c == '[')
          open_set();
        else
          take(1);
      }
    }
    return std::move(out_);
  }

 private:
  void take(std::size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }

  void open_set() {
    in_set_ = true;
    take(1);
    if (at_ < in_.size() && in_[at_] == '^') take(1);
    if (at_ < in_.size() && in_[at_] == ']') take(1);  // a leading ] is a member
  }

  Status inside_set(char c) {
    if (in_.substr(at_, 2) == "[:") {
      const std::size_t end = in_.find(":]", at_ + 2);
      if (end != std::string_view::npos) {
        take(end + 2 - at_);
        return {};
      }
    }
    if (c == '[' || in_.substr(at_, 2) == "&&") {
      return unsupported("regular expression with nested sets or set intersection: " +
                         std::string(in_) + "; write the set out");
    }
    if (c == ']') in_set_ = false;
    take(1);
    return {};
  }

  /// Copies \p{ or \P{ of a script as \p{sc: or \P{sc: and says whether it did.
  bool script_property() {
    const std::size_t end = in_.find('}', at_);
    if (in_.substr(at_ + 1, 2) != "p{" && in_.substr(at_ + 1, 2) != "P{") return false;
    if (end == std::string_view::npos) return false;
    const std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    if (std::find(std::begin(kScripts), std::end(kScripts), name) == std::end(kScripts)) {
      return false;
    }
    take(3);
    out_.append("sc:");
    take(name.size() + 1);
    return true;
  }

  Status escape() {
    if (script_property()) return {};
    const char name = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    const std::string_view members = members_of(name);
    if (members.empty()) {
      take(2);
      return {};
    }
    const bool negative = name < 'a';
    if (in_set_ && negative && name != 'S') {
      return unsupported(std::string("regular expression with \\") + name +
                         " inside a set: " + std::string(in_) + "; write the set out");
    }
    at_ += 2;
    if (in_set_) {
      // \S in a set stays PCRE2's: there is no way to put a complement into a set.
      out_.append(negative ? std::string_view("\\S") : members);
    } else {
      out_.append(negative ? "[^" : "[").append(members).append("]");
    }
    return {};
  }

  std::string_view in_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_set_ = false;
};

}  // namespace

Result<std::string> to_pcre2(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace attune::text
