#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.hpp"

#include <pcre2.h>

#include <array>

#include "text/regex_dialect.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

// Far above what a real pattern needs on megabytes of text, and a fraction of a second's work.
constexpr std::uint32_t kMatchLimit = 20'000'000;
constexpr std::uint32_t kHeapLimitKib = 256 << 10;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};

std::string error_text(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>> pcre;
  std::string pattern;  ///< the text itself where there is no pcre
};

Result<Regex> Regex::compile(std::string_view pattern) {
  auto translated = to_pcre2(pattern);
  if (!translated.ok()) return translated.status();
  std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Multiline because ^ and $ are line anchors in Oniguruma.
  constexpr std::uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  auto code = std::make_shared<Code>();
  code->pattern = std::string(pattern);
  code->pcre.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()),
                                 translated->size(), kOptions, &error, &offset, context.get()));
  if (!code->pcre) {
    return invalid_argument("regular expression does not compile: " + error_text(error) +
                            " at byte " + std::to_string(offset) + " of " + *translated);
  }
  // Where machine code cannot be made, matching is interpreted: slower, otherwise the same.
  pcre2_jit_compile(code->pcre.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

Regex Regex::literal(std::string_view text) {
  auto code = std::make_shared<Code>();
  code->pattern = std::string(text);
  return Regex(std::move(code));
}

struct Regex::Matcher::State {
  std::shared_ptr<const Code> code;
  std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>> data;
  std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>> context;
  std::string_view subject;
  std::size_t at = 0;
  std::size_t last_end = std::string_view::npos;

  [[nodiscard]] int match_with(std::uint32_t options) const {
    return pcre2_match(code->pcre.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()),
                       subject.size(), at, PCRE2_NO_UTF_CHECK | options, data.get(), context.get());
  }
  /// Machine code has 32 KiB of stack; the interpreter, which has the heap, takes over when a match
  /// outgrows them.
  [[nodiscard]] int match() const {
    const int found = match_with(0);
    return found == PCRE2_ERROR_JIT_STACKLIMIT ? match_with(PCRE2_NO_JIT) : found;
  }
};

Regex::Matcher::Matcher(const Regex& regex) : state_(std::make_unique<State>()) {
  state_->code = regex.code_;
  if (!state_->code->pcre) return;
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
}

Regex::Matcher::~Matcher() = default;

void Regex::Matcher::reset(std::string_view subject) {
  state_->subject = subject;
  state_->at = 0;
  state_->last_end = std::string_view::npos;
}

std::optional<ByteRange> Regex::Matcher::next_literal() {
  State& s = *state_;
  const std::string& text = s.code->pattern;
  const std::size_t begin = text.empty() ? std::string_view::npos : s.subject.find(text, s.at);
  if (begin == std::string_view::npos) return std::nullopt;
  s.at = begin + text.size();
  return ByteRange{begin, s.at};
}

Result<std::optional<ByteRange>> Regex::Matcher::next() {
  State& s = *state_;
  if (!s.code->pcre) return next_literal();
  while (s.at <= s.subject.size()) {
    const int found = s.match();
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return invalid_argument("regular expression gave up: " + error_text(found) + "; pattern " +
                              s.code->pattern);
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(s.data.get());
    const ByteRange match{range[0], range[1]};
    if (match.begin == match.end) {
      const bool at_end = match.end >= s.subject.size();
      s.at = match.end + (at_end ? 1 : read_utf8(s.subject.substr(match.end)).length);
      if (match.end == s.last_end) continue;
    } else {
      s.at = match.end;
    }
    s.last_end = match.end;
    return std::optional(match);
  }
  s.at = s.subject.size() + 1;
  return std::optional<ByteRange>();
}

}  // namespace attune::text
