// Regular expressions of tokenizer files, run by PCRE2 with its compiler to machine code. Patterns
// are written for Oniguruma; where the two read a pattern differently it is rewritten, and what
// cannot be said in PCRE2 is refused.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <attune/status.hpp>

namespace attune::text {

/// Half-open range of bytes.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  /// Matches `text` as it stands, by plain search; an empty text matches nowhere.
  static Regex literal(std::string_view text);

  /// Walks the matches of one regex, left to right and without overlap, in any number of subjects.
  /// Holds the scratch memory, so one per thread.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    /// Starts on another subject, which must be valid UTF-8 and outlive the walk.
    void reset(std::string_view subject);

    /// The next match, or nothing at the end. An empty match is never reported where the match
    /// before it ended. Fails when the pattern backtracks beyond reason.
    Result<std::optional<ByteRange>> next();

   private:
    std::optional<ByteRange> next_literal();
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace attune::text
