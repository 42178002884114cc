// What Python's operators do to values, and how values are written as text.
#pragma once

#include <string>

#include "text/jinja/run.hpp"
#include "text/jinja/value.hpp"

namespace attune::text::jinja {

/// str(value): what {{ value }} prints.
[[nodiscard]] std::string to_text(Run& run, const Value& value);
/// repr(value): as it appears inside a printed list.
[[nodiscard]] std::string to_repr(Run& run, const Value& value);

struct JsonStyle {
  int indent = -1;  ///< negative: on one line
  bool sort_keys = false;
  bool ensure_ascii = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// json.dumps(value).
[[nodiscard]] std::string to_json(Run& run, const Value& value, const JsonStyle& style);

[[nodiscard]] bool equal(Run& run, const Value& a, const Value& b);
/// Negative, zero or positive; fails for what has no order.
[[nodiscard]] int compare(Run& run, const Value& a, const Value& b);
/// `item in container`.
[[nodiscard]] bool contains(Run& run, const Value& container, const Value& item);

[[nodiscard]] Value add(Run& run, const Value& a, const Value& b);
[[nodiscard]] Value subtract(Run& run, const Value& a, const Value& b);
[[nodiscard]] Value multiply(Run& run, const Value& a, const Value& b);
[[nodiscard]] Value divide(Run& run, const Value& a, const Value& b);
[[nodiscard]] Value floor_divide(Run& run, const Value& a, const Value& b);
/// Remainder with the sign of b; no string formatting.
[[nodiscard]] Value modulo(Run& run, const Value& a, const Value& b);
[[nodiscard]] Value power(Run& run, const Value& a, const Value& b);

/// The elements of a list, the characters of a string, the keys of a mapping; none of an undefined
/// value. Fails for the rest.
[[nodiscard]] List iterate(Run& run, const Value& value);

/// object.name and object[key]: a missing one is undefined.
[[nodiscard]] Value attribute(Run& run, const Value& object, const std::string& name);
[[nodiscard]] Value subscript(Run& run, const Value& object, const Value& key);
/// object[start:stop:step]; an absent bound is none.
[[nodiscard]] Value slice(Run& run, const Value& object, const Value& start, const Value& stop,
                          const Value& step);

[[nodiscard]] Value call(Run& run, const Value& callee, const Args& args);

}  // namespace attune::text::jinja
