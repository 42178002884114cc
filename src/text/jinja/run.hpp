// One rendering: what it may still spend and the first thing that went wrong. After a failure every
// operation gives an undefined value and loops end, so the failure surfaces at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <attune/status.hpp>

#include "text/jinja/value.hpp"

namespace attune::text::jinja {

// Far above real templates on conversations of megabytes; a hostile one stops within two seconds
// and 200 MB. A step is about 100 ns of work or 16 bytes of memory.
inline constexpr std::int64_t kStepLimit = 10'000'000;
inline constexpr std::size_t kStepsPerItem = 4;     ///< of a list
inline constexpr std::size_t kStepsPerMember = 16;  ///< of a mapping
// Levels of syntax, of evaluation (syntax times calls) and of data; the first two bound the stack.
inline constexpr int kSyntaxDepthLimit = 400;
inline constexpr int kEvaluationDepthLimit = 1000;
inline constexpr int kDataDepthLimit = 100;
inline constexpr std::size_t kSizeLimit = 64u << 20;  ///< bytes of a string

class Run {
 public:
  explicit Run(std::optional<std::int64_t> now) : now_(now) {}

  /// Pays for work: `steps` operations. False when nothing is left.
  bool charge(std::size_t steps);
  /// Pays for copying or reading `bytes`.
  bool charge_bytes(std::size_t bytes) { return charge(1 + bytes / 16); }
  /// Pays for looking for `needle` bytes in `text` bytes, which may compare them all.
  bool charge_search(std::size_t text, std::size_t needle) {
    return charge(1 + text / 16 + text / 64 * needle);
  }

  /// Records the failure and gives the value to return.
  Value fail(std::string text);
  [[nodiscard]] bool failed() const { return !status_.ok(); }
  [[nodiscard]] Status status() const { return status_; }

  /// The line of the template being worked on, for error texts.
  void at_line(int line) { line_ = line; }
  [[nodiscard]] int line() const { return line_; }

  /// `text`, unless it is too long.
  Value checked(std::string text);
  /// `items`, unless they are too many or nest too deep.
  Value checked(List items);
  Value checked_tuple(List items);
  Value checked(Dict items);

  Value new_namespace(Dict members);
  [[nodiscard]] std::optional<std::int64_t> now() const { return now_; }

  /// One level of evaluation, for as long as it lives; a failure where that is too deep.
  class Level {
   public:
    explicit Level(Run& run) : run_(run) {
      if (++run.depth_ > kEvaluationDepthLimit) run.fail("calls nest too deep");
    }
    ~Level() { --run_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Run& run_;
  };

 private:
  Value checked_list(List items, bool tuple);

  std::int64_t steps_left_ = kStepLimit;
  std::optional<std::int64_t> now_;
  Status status_;
  int line_ = 1;
  int depth_ = 0;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

}  // namespace attune::text::jinja
