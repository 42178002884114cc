#include "text/jinja/lexer.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace attune::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_char(char c) {
  return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Line ends as "\n", and without the one at the very end.
std::string unified(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(unified(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size() && error_.ok()) text_and_tag();
    if (!error_.ok()) return error_;
    add(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] std::string_view rest() const { return std::string_view(source_).substr(at_); }
  [[nodiscard]] bool sees(std::string_view text) const { return rest().starts_with(text); }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(std::size_t count) {
    line_ += static_cast<int>(
        std::count(rest().begin(), rest().begin() + static_cast<std::ptrdiff_t>(count), '\n'));
    at_ += count;
  }

  void fail(const std::string& text) {
    if (error_.ok()) {
      error_ = invalid_argument("chat template, line " + std::to_string(line_) + ": " + text);
    }
  }

  /// One stretch of text and the tag after it.
  void text_and_tag() {
    std::size_t open = at_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == std::string::npos || open + 1 >= source_.size()) {
        add_data(rest());
        return advance(rest().size());
      }
      const char kind = source_[open + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    std::string_view data = rest().substr(0, open - at_);
    const std::size_t skipped = data.size();
    if (sign == '-') {
      data.remove_suffix(trailing_space(data));
    } else if (sign != '+' && kind != '{') {
      data = without_indent(data);
    }
    add_data(data);
    advance(skipped + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    line_starting_ = false;
    if (kind == '#')
      comment();
    else if (kind == '{')
      tag(TokenKind::variable_begin, TokenKind::variable_end, "}}");
    else if (!raw_block())
      tag(TokenKind::block_begin, TokenKind::block_end, "%}");
  }

  void add_data(std::string_view data) {
    if (!data.empty()) add(TokenKind::data, std::string(data));
  }

  /// lstrip_blocks: white space between the start of the line and a block goes.
  [[nodiscard]] std::string_view without_indent(std::string_view data) const {
    const std::size_t newline = data.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    const bool whole_line = line > 0 || line_starting_;
    const std::string_view indent = data.substr(line);
    if (whole_line && leading_space(indent) == indent.size()) return data.substr(0, line);
    return data;
  }

  /// Consumes a closing delimiter and what it trims; false where there is none.
  bool close(std::string_view delimiter) {
    const bool is_variable = delimiter == "}}";
    const std::size_t begin = at_;
    if (rest().size() > 2 && rest()[0] == '-' && rest().substr(1).starts_with(delimiter)) {
      advance(1 + delimiter.size());
      advance(leading_space(rest()));
    } else if (!is_variable && rest().size() > 2 && rest()[0] == '+' &&
               rest().substr(1).starts_with(delimiter)) {
      advance(1 + delimiter.size());
    } else if (sees(delimiter)) {
      advance(delimiter.size());
      if (!is_variable && sees("\n")) advance(1);  // trim_blocks
    } else {
      return false;
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
    return true;
  }

  void comment() {
    const std::size_t end = rest().find("#}");
    if (end == std::string_view::npos) return fail("a comment {# does not end");
    // A sign right before the end belongs to it.
    const bool sign = end > 0 && (rest()[end - 1] == '-' || rest()[end - 1] == '+');
    advance(end - (sign ? 1 : 0));
    close("#}");
  }

  /// {% raw %} ... {% endraw %}, after its {% was read. False where the block is another one.
  bool raw_block() {
    const std::size_t begin = at_;
    const int line = line_;
    advance(leading_space(rest()));
    if (!sees("raw") || (rest().size() > 3 && is_name_char(rest()[3]))) return rewind(begin, line);
    advance(3);
    advance(leading_space(rest()));
    if (sees("-%}")) {
      advance(3);
      advance(leading_space(rest()));
    } else if (sees("%}")) {
      advance(2);
    } else {
      return rewind(begin, line);
    }
    for (std::size_t open = at_;; ++open) {
      open = source_.find("{%", open);
      if (open == std::string::npos) {
        fail("{% raw %} does not end");
        return true;
      }
      const std::size_t body = open - at_;
      const bool strip = open + 2 < source_.size() && source_[open + 2] == '-';
      std::size_t word = open + 2 + (strip ? 1 : 0);
      while (word < source_.size() && is_space(source_[word])) ++word;
      if (source_.compare(word, 6, "endraw") != 0) continue;
      std::string_view data = rest().substr(0, body);
      if (strip)
        data.remove_suffix(trailing_space(data));
      else
        data = without_indent(data);
      add_data(data);
      advance(word + 6 - at_);
      advance(leading_space(rest()));
      if (!close("%}")) fail("{% endraw %} does not end");
      return true;
    }
  }

  bool rewind(std::size_t at, int line) {
    at_ = at;
    line_ = line;
    return false;
  }

  void tag(TokenKind begin, TokenKind end, std::string_view delimiter) {
    add(begin, {});
    std::vector<char> open;  // brackets that hide a delimiter: {{ {"a": {}} }}
    while (error_.ok()) {
      advance(leading_space(rest()));
      if (at_ >= source_.size()) return fail("a tag does not end with " + std::string(delimiter));
      const int line = line_;
      if (open.empty() && close(delimiter)) {
        tokens_.push_back({end, {}, line});
        return;
      }
      const char c = source_[at_];
      if (is_digit(c))
        number();
      else if (is_name_char(c))
        name();
      else if (c == '"' || c == '\'')
        string(c);
      else
        op(open);
    }
  }

  void name() {
    std::size_t length = 0;
    while (length < rest().size() && is_name_char(rest()[length])) ++length;
    add(TokenKind::name, std::string(rest().substr(0, length)));
    advance(length);
  }

  void number() {
    std::size_t length = digits(0);
    bool real = false;
    const auto next = [&](std::size_t i) { return i < rest().size() ? rest()[i] : '\0'; };
    if (next(length) == '.' && is_digit(next(length + 1))) {
      real = true;
      length = digits(length + 1);
    }
    if (next(length) == 'e' || next(length) == 'E') {
      const std::size_t sign = next(length + 1) == '+' || next(length + 1) == '-' ? 1 : 0;
      if (is_digit(next(length + 1 + sign))) {
        real = true;
        length = digits(length + 1 + sign);
      }
    }
    std::string text(rest().substr(0, length));
    std::erase(text, '_');
    add(real ? TokenKind::real : TokenKind::integer, std::move(text));
    advance(length);
  }

  [[nodiscard]] std::size_t digits(std::size_t i) const {
    while (i < rest().size() && (is_digit(rest()[i]) || rest()[i] == '_')) ++i;
    return i;
  }

  void string(char quote) {
    std::string text;
    std::size_t i = 1;
    for (;; ++i) {
      if (i >= rest().size()) return fail("a string does not end");
      if (rest()[i] == quote) break;
      if (rest()[i] == '\\' && i + 1 < rest().size()) {
        i += escape(rest().substr(i + 1), text);
      } else {
        text.push_back(rest()[i]);
      }
    }
    add(TokenKind::string, std::move(text));
    advance(i + 1);
  }

  /// Appends what the escape after a backslash stands for; returns its length.
  static std::size_t escape(std::string_view text, std::string& out) {
    constexpr std::string_view kNames = "\\'\"abfnrtv\n";
    constexpr std::array<std::string_view, 11> kMeanings{"\\", "'",  "\"", "\a", "\b", "\f",
                                                         "\n", "\r", "\t", "\v", ""};
    const std::size_t known = kNames.find(text[0]);
    if (known != std::string_view::npos) {
      out += kMeanings[known];
      return 1;
    }
    const std::size_t hex = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
    std::uint32_t code = 0;
    if (hex > 0 && text.size() > hex) {
      const char* end = text.data() + 1 + hex;
      const auto parsed = std::from_chars(text.data() + 1, end, code, 16);
      if (parsed.ec == std::errc{} && parsed.ptr == end) {
        const bool is_char = code < 0x110000 && (code < 0xD800 || code > 0xDFFF);
        append_utf8(out, is_char ? code : kReplacement);
        return 1 + hex;
      }
    }
    std::size_t octal = 0;
    while (octal < 3 && octal < text.size() && text[octal] >= '0' && text[octal] <= '7') {
      code = code * 8 + static_cast<std::uint32_t>(text[octal++] - '0');
    }
    if (octal > 0) {
      append_utf8(out, code);
      return octal;
    }
    out.push_back('\\');  // no escape: the backslash stays
    return 0;
  }

  void op(std::vector<char>& open) {
    constexpr std::array<std::string_view, 26> kOps{
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto it = std::find_if(kOps.begin(), kOps.end(), [this](auto o) { return sees(o); });
    if (it == kOps.end()) {
      return fail("unexpected character '" +
                  std::string(rest().substr(0, read_utf8(rest()).length)) + "'");
    }
    const char c = it->front();
    if (it->size() == 1 && (c == '(' || c == '[' || c == '{')) open.push_back(c);
    if (it->size() == 1 && (c == ')' || c == ']' || c == '}')) {
      const char mate = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != mate) return fail("unexpected '" + std::string(*it) + "'");
      open.pop_back();
    }
    add(TokenKind::op, std::string(*it));
    advance(it->size());
  }

  std::string source_;
  std::vector<Token> tokens_;
  Status error_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  ///< the last tag took its line end along, or there was none
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace attune::text::jinja
