// Status and Result<T>: every fallible call of Attune returns one of these (layer base).
//
// The library never throws, prints, aborts or exits for a user's mistake. A Status says what was
// wanted, what was found and what to do; a status of code `unsupported` also carries every refusal
// met, as data.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace attune {

/// Named by who must act.
enum class StatusCode : unsigned char {
  ok,
  invalid_argument,  ///< the caller: a shape, an index, a file, a flag
  unsupported,       ///< no backend can serve this; refusals() says why
  out_of_pages,      ///< the scheduler: wait or evict
  out_of_memory,     ///< the operator
  device_error,      ///< the driver; the text is the driver's
  plugin_error,      ///< whoever built the plugin
  internal,          ///< us
};

[[nodiscard]] constexpr std::string_view name(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return "ok";
    case StatusCode::invalid_argument: return "invalid_argument";
    case StatusCode::unsupported: return "unsupported";
    case StatusCode::out_of_pages: return "out_of_pages";
    case StatusCode::out_of_memory: return "out_of_memory";
    case StatusCode::device_error: return "device_error";
    case StatusCode::plugin_error: return "plugin_error";
    case StatusCode::internal: return "internal";
  }
  return "unknown";
}

/// Why one backend cannot serve one request: the rule that said no, what the rule wanted, what it
/// found.
struct Refusal {
  std::string backend;
  std::string rule;
  std::string wanted;
  std::string have;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string text) : code_(code), text_(std::move(text)) {}
  Status(StatusCode code, std::string text, std::vector<Refusal> refusals)
      : code_(code), text_(std::move(text)), refusals_(std::move(refusals)) {}

  [[nodiscard]] bool ok() const { return code_ == StatusCode::ok; }
  [[nodiscard]] StatusCode code() const { return code_; }
  // By value from a temporary, so that `result.status().text()` does not dangle.
  [[nodiscard]] const std::string& text() const& { return text_; }
  [[nodiscard]] std::string text() && { return std::move(text_); }
  [[nodiscard]] const std::vector<Refusal>& refusals() const& { return refusals_; }
  [[nodiscard]] std::vector<Refusal> refusals() && { return std::move(refusals_); }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string text_;
  std::vector<Refusal> refusals_;
};

[[nodiscard]] inline Status invalid_argument(std::string text) {
  return {StatusCode::invalid_argument, std::move(text)};
}
[[nodiscard]] inline Status unsupported(std::string text, std::vector<Refusal> refusals = {}) {
  return {StatusCode::unsupported, std::move(text), std::move(refusals)};
}
[[nodiscard]] inline Status internal_error(std::string text) {
  return {StatusCode::internal, std::move(text)};
}

/// Ends the process when a contract between Attune's own parts is broken; never used for a caller's
/// mistake.
inline void require(bool holds, std::string_view what,
                    std::source_location where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "attune: broken contract: %.*s (%s:%u)\n", static_cast<int>(what.size()),
               what.data(), where.file_name(), static_cast<unsigned>(where.line()));
  std::abort();
}

/// A value or the Status that explains its absence.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    require(!std::get<Status>(state_).ok(), "a Result without a value needs a failed Status");
  }

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  [[nodiscard]] Status status() const { return ok() ? Status{} : std::get<Status>(state_); }

  [[nodiscard]] T& value() & { return checked(); }
  [[nodiscard]] const T& value() const& { return const_cast<Result*>(this)->checked(); }
  [[nodiscard]] T&& value() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T&& operator*() && { return std::move(checked()); }

 private:
  T& checked() {
    require(ok(), "value() of a failed Result");
    return std::get<T>(state_);
  }
  std::variant<T, Status> state_;
};

}  // namespace attune
